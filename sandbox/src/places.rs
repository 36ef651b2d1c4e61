//! What is put where in a sandbox, and in which order (protocol 2.8, decisions C-17). Pure.
//!
//! The order is the protocol's table: proc, dev, tmp, read_only, read_write, devices, homes, the workspace at
//! `workspace_at`, created_files; of two at one place the later one is seen. One exception: the workspace comes before
//! everything that is seen beneath it, which is then put in it.

use crate::op::{Access, Point};
use crate::recipe::{Facts, Shown, within};
use crate::spec::{Confinement, CreatedFile};

/// One thing put in a sandbox.
pub(crate) struct Put<'a> {
    /// What.
    pub(crate) what: What<'a>,
    /// Where: no link of ours is on the way, since a link stays one only when nothing is put beneath it.
    pub(crate) at: String,
    /// Who makes the mount point.
    pub(crate) point: Point,
}

/// What is put.
#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    /// Its own processes.
    Proc,
    /// Its own devices.
    Dev,
    /// An empty folder.
    Tmp,
    /// A path of the host's.
    Host(&'a Shown, Access),
    /// A link with this text.
    Link(&'a str),
    /// A file made for it.
    Created(&'a CreatedFile),
}

/// Who owns what is seen at a place already put.
#[derive(Clone, Copy)]
enum Ground {
    Own,
    ReadOnly,
    ReadWrite,
}

impl What<'_> {
    fn ground(self) -> Ground {
        match self {
            Self::Proc | Self::Dev | Self::Tmp | Self::Link(_) | Self::Created(_) => Ground::Own,
            Self::Host(_, Access::Write) => Ground::ReadWrite,
            Self::Host(_, Access::Read | Access::Device) => Ground::ReadOnly,
        }
    }
}

/// One thing to be put, where it was asked for.
struct Entry<'a> {
    what: What<'a>,
    at: String,
}

/// Where the process sees a host path: beneath `workspace_at` when it lies in the workspace.
fn seen_at(confinement: &Confinement, facts: &Facts<'_>, path: &str) -> String {
    match (&confinement.workspace_at, &facts.workspace) {
        (Some(at), Some(workspace)) if within(path, workspace) => {
            format!("{at}{}", path.strip_prefix(workspace.as_str()).unwrap_or_default())
        }
        _ => path.to_owned(),
    }
}

/// Everything, in order.
fn entries<'a>(confinement: &'a Confinement, facts: &'a Facts<'_>) -> Vec<Entry<'a>> {
    let own = [(What::Proc, &confinement.proc), (What::Dev, &confinement.dev), (What::Tmp, &confinement.tmp)];
    let mut all: Vec<Entry<'_>> = own.into_iter().map(|(what, at)| Entry { what, at: at.clone() }).collect();
    let lists =
        [(&facts.read_only, Access::Read), (&facts.read_write, Access::Write), (&facts.devices, Access::Device)];
    for (list, access) in lists {
        let put =
            |shown: &'a Shown| Entry { what: What::Host(shown, access), at: seen_at(confinement, facts, &shown.path) };
        all.extend(list.iter().map(put));
    }
    let home = confinement.workspace_at.as_ref().or(facts.workspace.as_ref()).map_or("", String::as_str);
    all.extend(facts.homes.iter().map(|shown| {
        let name = shown.path.rsplit('/').next().unwrap_or_default();
        Entry { what: What::Host(shown, Access::Write), at: format!("{home}/{name}") }
    }));
    let named = |it: &Shown| Some(&it.path) == facts.workspace.as_ref();
    if let (Some(at), Some(shown)) = (&confinement.workspace_at, &facts.workspace_shown) {
        // Named itself, it is put by its list, with that list's access.
        if !facts.read_only.iter().chain(&facts.read_write).any(named) {
            all.push(Entry { what: What::Host(shown, Access::Write), at: at.clone() });
        }
    }
    all.extend(confinement.created_files.iter().map(|it| Entry { what: What::Created(it), at: it.at.clone() }));
    if let Some(place) = &confinement.workspace_at {
        // Stable: else the table's order stays.
        all.sort_by_key(|it| {
            let here = it.at == *place;
            let workspace = here && matches!(it.what, What::Host(shown, _) if named(shown));
            let beneath = within(&it.at, place) && (!here || matches!(it.what, What::Created(_)));
            if workspace { 1 } else { 2 * u8::from(beneath) }
        });
    }
    all
}

/// Whether the entry is best shown as the link it is on the host: what it leads to is shown with the same access, and
/// nothing is to be put beneath it.
fn stays_link(entries: &[Entry<'_>], entry: &Entry<'_>) -> bool {
    let What::Host(shown, access) = entry.what else { return false };
    let Some((_, leads_to)) = &shown.link else { return false };
    let holds = |it: &Entry<'_>| match it.what {
        What::Host(other, as_well) => as_well == access && other.link.is_none() && within(leads_to, &it.at),
        What::Proc | What::Dev | What::Tmp | What::Link(_) | What::Created(_) => false,
    };
    let beneath = |it: &Entry<'_>| match it.what {
        // Itself, and itself named again, are no more than the link.
        What::Host(other, _) => within(&it.at, &entry.at) && (it.at != entry.at || other.path != shown.path),
        What::Proc | What::Dev | What::Tmp | What::Link(_) | What::Created(_) => within(&it.at, &entry.at),
    };
    entry.at == shown.path && entries.iter().any(holds) && !entries.iter().any(beneath)
}

/// The last thing put at or above `at`: what a mount point there would lie in.
fn ground(puts: &[Put<'_>], at: &str) -> Ground {
    let mounts = puts.iter().rev().filter(|it| !matches!(it.what, What::Link(_)));
    let mut above = mounts.filter(|it| within(at, &it.at));
    above.next().map_or(Ground::Own, |it| it.what.ground())
}

/// What is put, in the order in which it is.
pub(crate) fn places<'a>(confinement: &'a Confinement, facts: &'a Facts<'_>) -> Vec<Put<'a>> {
    let mut puts: Vec<Put<'a>> = Vec::new();
    let all = entries(confinement, facts);
    for entry in &all {
        let ground = ground(&puts, &entry.at);
        let put = |what, point| Put { what, at: entry.at.clone(), point };
        if let (true, What::Host(Shown { link: Some((words, _)), .. }, _)) = (stays_link(&all, entry), entry.what) {
            // Inside a host path it is there already, and so it is when it is named twice.
            let there = puts.iter().any(|it| it.at == entry.at && matches!(it.what, What::Link(_)));
            if matches!(ground, Ground::Own) && !there {
                puts.push(put(What::Link(words), Point::Own));
            }
            continue;
        }
        let point = match ground {
            Ground::Own => Point::Own,
            Ground::ReadOnly => Point::There,
            Ground::ReadWrite => Point::Account,
        };
        puts.push(put(entry.what, point));
    }
    puts
}
