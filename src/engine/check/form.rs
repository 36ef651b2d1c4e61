//! Refusal 2, where it takes values to see it: equal base names and equal names of unversioned files.

use std::collections::BTreeSet;

use super::{EXPANDED_BYTES_MAX, Expander, Fault, Reads, Run, Values, forms};

/// The fault, if there is one (decisions C-26, C-46).
pub(super) fn refusal(run: &Run, known: &Values) -> Option<Fault> {
    let fault = |key: String, why: &str| Some(Fault { key, why: why.to_owned() });
    let mut expander = Expander::new(known, None, EXPANDED_BYTES_MAX);
    let mut bases = BTreeSet::new();
    let homes = run.sandbox.iter().flat_map(|sandbox| &sandbox.homes);
    for (index, home) in homes.enumerate() {
        let key = format!("sandbox.homes[{index}]");
        let home = expander.expand_known(home, Reads::Host);
        match forms::base_name(&home) {
            None => return fault(key, "has no base name"),
            Some(base) if !bases.insert(base.to_owned()) => return fault(key, "has the base name of another home"),
            Some(_) => {}
        }
    }
    let mut names = BTreeSet::new();
    for (index, (_, name)) in run.process.unversioned_files.iter().enumerate() {
        if !names.insert(expander.expand_known(name, Reads::Process)) {
            return fault(format!("process.unversioned_files[{index}].as"), "is the name of another file");
        }
    }
    None
}
