//! The protocol's document, made from its tables: what `ocx protocol` prints, and `PROTOCOL.md` beside this file is.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::VERSION;
use super::filters::{Arrival, FILTERS, line_keys};
use super::forms::Form;
use super::keys::{Acts, Reads, Within, keys_within};
use super::kinds::{KINDS, Kind, Place, Sender};
use super::life::{LIFE, STAYS};
use super::outcomes::{OUTCOMES, Publication};
use super::refusals::REFUSALS;
use super::steps::{STEPS, StepKind};
use super::values::{SECRET_PREFIX, SetBy, VALUES};

/// One table of the document.
#[derive(Debug)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// What a reader must know about it.
    pub says: String,
    /// The heads of its columns.
    pub columns: &'static [&'static str],
    /// Its rows, each as long as `columns`.
    pub rows: Vec<Vec<String>>,
}

fn table(title: &str, says: &str, columns: &'static [&'static str], rows: Vec<Vec<String>>) -> Table {
    Table { title: title.to_owned(), says: says.to_owned(), columns, rows }
}

/// Every table, in the order in which the protocol is read.
#[must_use]
pub fn tables() -> Vec<Table> {
    let mut all = vec![kinds()];
    all.extend(PLACES.iter().map(|(within, says)| keys(*within, says)));
    all.extend([values(), steps(), refusals(), outcomes(), publications(), filters(), lines(), life(), stays()]);
    all
}

/// The objects whose keys are told, each with what it is.
const PLACES: &[(Within, &str)] = &[
    (Within::Envelope, "The message itself: these keys, and one more that names its kind and holds its content."),
    (Within::Content(Kind::Run), "Asks a node for a process."),
    (Within::Step(StepKind::Directory), ""),
    (Within::Step(StepKind::Password), "No key but `step`."),
    (Within::Step(StepKind::Clone), ""),
    (Within::Step(StepKind::Checkout), ""),
    (Within::Step(StepKind::Files), ""),
    (
        Within::Sandbox,
        "What the process sees and may do. Every key that is required says so on purpose: nothing is assumed.",
    ),
    (Within::CreatedFile, ""),
    (Within::Limits, "Past a limit a run ends with outcome `budget`, and its note names the limit."),
    (Within::Process, ""),
    (Within::Keep, "How much of the end of each stream is kept for the log."),
    (Within::UnversionedFile, ""),
    (Within::Content(Kind::Stop), "No key: `{}`."),
    (Within::Content(Kind::Publish), "No key: `{}`."),
    (Within::Content(Kind::Started), "As OCX writes it; readers pass by keys they do not know."),
    (Within::Content(Kind::Ended), "As OCX writes it; readers pass by keys they do not know."),
];

fn kinds() -> Table {
    let rows = KINDS.iter().map(|row| {
        let sender = match row.sender {
            Sender::RunSender => "a user holding admin or setup; or R, isolated as refusal 1 asks",
            Sender::Stopper => "a user holding admin or setup; or the user holding R that sent the run",
            Sender::Publisher => "the run's sender, or a user holding admin or setup",
            Sender::CloneUser => "OCX on the run's clone, as the run's `to`",
            Sender::Anyone => "anyone who may write there",
        };
        let place = match row.place {
            Place::Anywhere => "any thread or ticket",
            Place::WhereAnswered => "the thread or ticket of what it answers",
        };
        let has = |it: bool| if it { "required" } else { "" };
        [code(row.kind.word()), has(row.to).into(), has(row.re).into(), sender.into(), place.into()]
            .into_iter()
            .chain([row.answered_by.to_owned(), row.spec.to_owned()])
            .collect()
    });
    let says = "A message is one JSON object in a fenced block of a forum post or a ticket change.";
    table("Kinds", says, &["kind", "to", "re", "sent by", "counts in", "answered by", "see"], rows.collect())
}

fn keys(within: Within, says: &str) -> Table {
    let rows = keys_within(within).map(|row| {
        let default = if row.required { "required".to_owned() } else { format!("if absent: {}", row.default) };
        let reads = match row.reads {
            Reads::Nothing => "",
            Reads::Host => "as the host has it",
            Reads::Process => "as the process sees it",
        };
        let acts = match row.acts {
            Acts::Yes => String::new(),
            Acts::Only(meaning) => format!("only {meaning}; another is refused (6)"),
            Acts::No => "refused (6)".to_owned(),
        };
        vec![code(row.key), holds(row.form), default, reads.to_owned(), acts, row.spec.to_owned()]
    });
    let columns = &["key", "holds", "absence", "values in it", "this release", "see"];
    table(&format!("Keys of {}", place(within)), says, columns, rows.collect())
}

/// An object, as the document names it.
fn place(within: Within) -> String {
    match within {
        Within::Envelope => "the message".to_owned(),
        Within::Content(kind) => format!("`{kind}`"),
        Within::Step(kind) => format!("a `{kind}` step"),
        Within::Sandbox => "`sandbox`".to_owned(),
        Within::CreatedFile => "one of `created_files`".to_owned(),
        Within::Limits => "`limits`".to_owned(),
        Within::Process => "`process`".to_owned(),
        Within::Keep => "`keep`".to_owned(),
        Within::UnversionedFile => "one of `unversioned_files`".to_owned(),
    }
}

/// A form, in words.
fn holds(form: Form) -> String {
    let words = match form {
        Form::Flag => "`true` or `false`",
        Form::Text => "text",
        Form::Argument => "text without NUL",
        Form::Name => "text, not empty, without NUL",
        Form::Login => "a login",
        Form::CloneCode => "40 lower-case hex digits",
        Form::Exactly(number) => return number.to_string(),
        Form::Whole(most) => return format!("a whole number from 0 to {most}"),
        Form::Count => "a whole number from 1",
        Form::Duration => "a whole number above 0 and `s`, `m`, `h` or `d`, as text",
        Form::Size => "whole bytes as a number, or digits with `K`, `M` or `G` as text",
        Form::Word(words) => {
            return words.iter().map(|word| code(&format!("\"{word}\""))).collect::<Vec<_>>().join(" or ");
        }
        Form::PlaceOfWorkspace => "an absolute normalised path other than `/`, no value in it",
        Form::Device => "the path of a device of the host",
        Form::List(&item) => return format!("a list; each: {}", holds(item)),
        Form::Command => "a list of a program and its arguments",
        Form::Hears => "a list of logins, or `[\"*\"]`",
        Form::Environment => "an object of texts, by variable",
        Form::Object(within) => return format!("an object: keys of {}", place(within)),
        Form::Objects(within) => return format!("a list; each: keys of {}", place(within)),
        Form::Steps => "a list of steps; `step` in each names its kind",
        Form::AnyObject => "an object",
        Form::AnyList => "a list",
    };
    words.to_owned()
}

fn values() -> Table {
    let rows = VALUES.iter().map(|row| {
        let set_by = match row.set_by {
            SetBy::Ocx => "OCX".to_owned(),
            SetBy::Steps { kinds, or_of } => {
                let steps = kinds.iter().map(|kind| code(kind.word())).collect::<Vec<_>>().join(" or ");
                if or_of { format!("{steps}, or the run's `of`") } else { steps }
            }
        };
        let moves = if row.moves { "under `workspace_at`" } else { "" };
        vec![code(&format!("$${}$$", row.name)), row.holds.to_owned(), set_by, moves.to_owned()]
    });
    let says = format!(
        "`$$name$$` in a string in which values are read is replaced by what the name holds. `$${SECRET_PREFIX}NAME$$` is a \
         secret of the host's, and never in `started`."
    );
    table("Values", &says, &["value", "holds", "set by", "the process sees it"], rows.collect())
}

fn steps() -> Table {
    let rows = STEPS.iter().map(|row| {
        let needs = row.needs.iter().map(|kind| code(kind.word())).collect::<Vec<_>>().join(", ");
        let sets = row.sets.iter().map(|name| code(name.word())).collect::<Vec<_>>().join(", ");
        vec![code(row.kind.word()), row.does.to_owned(), needs, sets]
    });
    table("Workspace steps", "In the order of the run's list.", &["step", "does", "after", "sets"], rows.collect())
}

fn refusals() -> Table {
    let rows = REFUSALS.iter().map(|row| {
        let stop = if row.before_stop { "before" } else { "after" };
        vec![row.row.to_string(), row.holds_when.to_owned(), row.note_names.to_owned(), stop.to_owned()]
    });
    let says = "Checked in this order. The first that holds is the answer: `ended` with outcome `refused`, its note naming \
                what the table says. Nothing is made for a run refused by 1 to 8.";
    table("Refusals", says, &["row", "holds when", "the note names", "a waiting stop is looked at"], rows.collect())
}

fn outcomes() -> Table {
    let rows = OUTCOMES.iter().map(|row| {
        let exit = if row.exit { "required" } else { "" };
        let publishes = if row.publishes { "yes" } else { "" };
        let note = row.note.unwrap_or_default();
        vec![code(row.outcome.word()), row.when.to_owned(), exit.to_owned(), note.to_owned(), publishes.to_owned()]
    });
    table("Outcomes", "", &["outcome", "when", "exit", "note", "files and verdict"], rows.collect())
}

fn publications() -> Table {
    let rows = Publication::ALL.iter().map(|it| vec![code(it.word())]);
    table(
        "Publications",
        "They follow `ended` in this order, each on the server before the next.",
        &["publication"],
        rows.collect(),
    )
}

fn filters() -> Table {
    let rows = FILTERS.iter().map(|row| vec![row.filter.word().to_owned(), row.passes_when.to_owned()]);
    let says = "What an artifact passes, in this order, to be given to a session.";
    table("Filters", says, &["filter", "passes when"], rows.collect())
}

fn lines() -> Table {
    let rows = Arrival::ALL.iter().map(|it| {
        let keys = line_keys(*it).iter().map(|key| code(key)).collect::<Vec<_>>().join(", ");
        vec![it.word().to_owned(), keys]
    });
    table("Lines of a delivery", "One JSON object a line, keys in this order.", &["arrival", "keys"], rows.collect())
}

fn life() -> Table {
    let rows = LIFE.iter().map(|row| {
        let effects = row.effects.iter().map(|it| it.word()).collect::<Vec<_>>().join(", ");
        vec![row.from.word().into(), row.on.word().into(), row.to.word().into(), effects, row.spec.into()]
    });
    let says =
        "What a node does with a run in its hands. A word of the last column is done only after the one before it.";
    table("Life of a run", says, &["in", "on", "to", "and does", "because"], rows.collect())
}

fn stays() -> Table {
    let rows = STAYS.iter().map(|row| {
        let words = |it: Vec<&str>| it.join(", ");
        vec![
            words(row.events.iter().map(|it| it.word()).collect()),
            words(row.states.iter().map(|it| it.word()).collect()),
            words(row.effects.iter().map(|it| it.word()).collect()),
            row.why.to_owned(),
        ]
    });
    table("Events that change nothing", "", &["on", "in", "and does", "because"], rows.collect())
}

fn code(word: &str) -> String {
    format!("`{word}`")
}

/// The document as Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut out = format!(
        "# OCX protocol, version {VERSION}\n\n\
         Made by `ocx protocol` from the tables the programs themselves work by; a number such as 2.7 is a paragraph of the \
         protocol, one such as C-04 a decision about it.\n"
    );
    for Table { title, says, columns, rows } in tables() {
        // Writing to text cannot fail.
        let _text = write!(out, "\n## {title}\n");
        if !says.is_empty() {
            let _text = write!(out, "\n{says}\n");
        }
        if rows.is_empty() {
            continue;
        }
        let _text = write!(out, "\n| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            let _text = writeln!(out, "| {} |", cells.join(" | "));
        }
    }
    out
}

/// The document for programs: `{"version": N, "tables": [{"title", "says", "rows": [{COLUMN: TEXT}]}]}`.
#[must_use]
pub fn json() -> Value {
    let one = |it: Table| {
        let row = |cells: &Vec<String>| {
            let pairs = it.columns.iter().zip(cells).map(|(column, cell)| ((*column).to_owned(), json!(cell)));
            Value::Object(pairs.collect())
        };
        let rows: Vec<Value> = it.rows.iter().map(row).collect();
        json!({"title": it.title, "says": it.says, "rows": rows})
    };
    json!({"version": VERSION, "tables": tables().into_iter().map(one).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::keys::KEYS;

    #[test]
    fn every_key_kind_and_step_has_its_place_in_it() {
        for row in KEYS {
            assert!(PLACES.iter().any(|(within, _)| *within == row.within), "{:?} {}", row.within, row.key);
        }
        let text = markdown();
        for kind in Kind::ALL.iter().filter(|it| !matches!(it, Kind::Question | Kind::Decision)) {
            assert!(text.contains(&format!("## Keys of `{kind}`")), "{kind}");
        }
        for kind in StepKind::ALL {
            assert!(text.contains(&format!("## Keys of a `{kind}` step")), "{kind}");
        }
    }

    #[test]
    fn every_row_is_as_wide_as_its_head() {
        for table in tables() {
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}: {row:?}", table.title);
            }
        }
    }

    #[test]
    fn the_document_that_is_shipped_is_what_the_tables_say() {
        let shipped = include_str!("PROTOCOL.md");
        assert!(shipped == markdown(), "write it again: cargo run --bin ocx -- protocol > src/protocol/PROTOCOL.md");
    }
}
