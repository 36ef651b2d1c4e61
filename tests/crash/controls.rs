//! Controls: with one rule taken away from the programs, the suite misses it.

use supervisor::effects::{Did, Told};
use supervisor::points::{Effect, Moment, Point, of_table};

use crate::case::{self, Death};
use crate::cases::Scenario;
use crate::frozen::Disk;
use crate::host::Host;
use ocx::node::poster::Post;
use ocx::protocol::life::Do;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("control: a launch that leaves no mark is missed (C-104)", no_launch_mark),
    ("control: an event not kept until it is noted is missed (C-102)", not_kept),
    ("control: a care record that goes without its line in launched is missed (C-101)", no_line),
    ("control: a state written without fsync is missed (P6)", no_fsync),
    ("control: an orphan that is not ended is missed (P3, C-110)", not_ended),
    ("control: a run in care/launched that is taken again is missed (P1, C-101)", taken_again),
    ("control: a post that is not looked for after a restart is missed (C-106)", not_looked_for),
];

fn point<E: Effect + PartialEq>(effect: E, moment: Moment) -> Point {
    of_table::<E>().into_iter().find(|(row, point)| *row == effect && point.moment == moment).unwrap().1
}

/// The case passes with every rule in place, and finds this fault with one taken away.
fn missed(rule: &str, point: Point, scenario: Scenario, death: Death, fault: &str) {
    let mut host = Host::new("");
    case::run(&mut host, point, scenario, death).unwrap_or_else(|why| panic!("with the rule in place: {why}"));
    host.stop().unwrap();
    let mut host = Host::new(rule);
    let found =
        case::run(&mut host, point, scenario, death).expect_err("the rule was taken away, and nothing missed it");
    assert!(found.contains(fault), "{fault:?} is not among what was found: {found}");
    // What such a supervisor left alive is this test's to end.
    host.trial.kill_host().unwrap();
    host.stop().unwrap();
}

fn no_launch_mark() {
    // What it leaves behind is ended: only then is it sure that it ran.
    missed("launch-mark", point(Did::Kill, Moment::Before), Scenario::Plain, Death::Supervisor, "C-101: launched");
}

fn not_kept() {
    missed("kept-until-noted", point(Told::Exited, Moment::After), Scenario::Plain, Death::Node, "never answered");
}

fn no_line() {
    missed("line-of-launched", point(Do::Release, Moment::Before), Scenario::Plain, Death::Node, "C-101: launched");
}

fn no_fsync() {
    missed("fsync", point(Do::PostEnded, Moment::Before), Scenario::Plain, Death::Host(Disk::Torn), "was durable");
}

fn not_ended() {
    missed("orphans-ended", point(Did::EndOrphan, Moment::After), Scenario::Orphaned, Death::Node, "live");
}

fn taken_again() {
    missed("was", point(Do::Take, Moment::Answered), Scenario::Forgotten, Death::Node, "lost");
}

fn not_looked_for() {
    missed("looked-for", point(Post::Logs, Moment::Answered), Scenario::Plain, Death::Node, "twice");
}
