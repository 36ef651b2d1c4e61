//! `cargo vm list|image|shell|test`: whole hosts under QEMU.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use crate::image::{Cache, Kernel, Tools};
use crate::programs::{Packed, Programs};
use crate::qemu::Guest;
use crate::recipe::Recipe;
use crate::tally::Tally;
use crate::verdict::{self, Verdict, judge};
use crate::words::Said;
use crate::workspace::Workspace;
use crate::{image, packages};

/// What one architecture's guests are made of, there and ready.
struct Made {
    tools: Tools,
    kernel: Kernel,
    root: std::path::PathBuf,
}

/// Holds the cache no longer than that: once a thing is made it is only read.
fn make(recipe: &Recipe, name: &str) -> Result<Made, String> {
    let cache = Cache::open(recipe)?;
    let arch = recipe.arch(name)?;
    Ok(Made { tools: cache.tools()?, kernel: cache.kernel(arch)?, root: cache.root(arch)? })
}

/// The words after the command, which must be text.
fn words(args: &[OsString]) -> Result<Vec<String>, String> {
    args.iter().map(|it| it.to_str().map(String::from).ok_or_else(|| format!("{it:?} is no text"))).collect()
}

/// The architectures a word names: one, or `all`; the host's own when there is none.
fn architectures(recipe: &Recipe, word: Option<&str>) -> Result<Vec<String>, String> {
    match word.unwrap_or(std::env::consts::ARCH) {
        "all" => Ok(recipe.arch.keys().cloned().collect()),
        one => recipe.arch(one).map(|_| vec![String::from(one)]),
    }
}

/// `cargo vm list`: what there can be, and what of it is in the cache.
pub(crate) fn list() -> Result<ExitCode, String> {
    let recipe = Recipe::read()?;
    let place = image::place();
    let there = |name: String| if place.join(&name).exists() { "in the cache" } else { "not made yet" };
    println!("cache: {}", place.display());
    for (name, arch) in &recipe.arch {
        println!("{name}: {} {}: {}", arch.kernel.package, arch.kernel.version, arch.kernel.shows);
        println!("  kernel {}, root {}", there(arch.kernel_name()?), there(recipe.root_name(arch)?));
    }
    println!("boots: bare (our own init is PID 1)");
    Ok(ExitCode::SUCCESS)
}

/// `cargo vm image ARCH`: makes what is not there.
pub(crate) fn image(args: &[OsString]) -> Result<ExitCode, String> {
    let words = words(args)?;
    let [word] = words.as_slice() else { return Err(String::from("image takes an architecture, or all")) };
    let recipe = Recipe::read()?;
    let names = architectures(&recipe, Some(word))?;
    packages::require_for_guests("cargo vm image", &names)?;
    for name in names {
        let made = make(&recipe, &name)?;
        println!("{name}: kernel {}", made.kernel.image.display());
        println!("{name}: root {}", made.root.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// `cargo vm shell ARCH`: a console in a guest with the programs in it.
pub(crate) fn shell(args: &[OsString]) -> Result<ExitCode, String> {
    let words = words(args)?;
    let [name] = words.as_slice() else { return Err(String::from("shell takes one architecture")) };
    let recipe = Recipe::read()?;
    recipe.arch(name)?;
    packages::require_for_guests("cargo vm shell", &words)?;
    let workspace = Workspace::find()?;
    let programs = Programs::build(&workspace, name)?;
    let made = make(&recipe, name)?;
    let packed = programs.pack(name, &[], &made.kernel.modules)?;
    let guest = guest(name, &made, &packed);
    eprintln!("cargo vm: exit ends the guest; Ctrl-A X ends QEMU. The programs are where they were built.");
    guest.shell(&made.tools)?;
    Ok(ExitCode::SUCCESS)
}

fn guest<'a>(arch: &'a str, made: &'a Made, packed: &Packed) -> Guest<'a> {
    let (initramfs, programs) = (packed.initramfs(), packed.disk());
    Guest { arch, kernel: &made.kernel.image, initramfs, root: &made.root, programs, append: "" }
}

/// `cargo vm test [ARCH|all] [NAME…]`: one line a guest at the end, and it fails when one of them is not ok.
pub(crate) fn test(args: &[OsString]) -> Result<ExitCode, String> {
    let words = words(args)?;
    let recipe = Recipe::read()?;
    let names = architectures(&recipe, words.first().map(String::as_str))?;
    packages::require_for_guests("cargo vm test", &names)?;
    let workspace = Workspace::find()?;
    let mut lines = Vec::new();
    let mut good = true;
    for name in names {
        let start = Instant::now();
        let programs = Programs::build(&workspace, &name)?;
        let jobs = programs.named(words.get(1..).unwrap_or_default())?;
        let made = make(&recipe, &name)?;
        let packed = programs.pack(&name, &jobs, &made.kernel.modules)?;
        let guest = guest(&name, &made, &packed);
        let how = if guest.kvm() { "KVM" } else { "TCG" };
        let built = start.elapsed().as_secs();
        let mut tally = Tally::default();
        let start = Instant::now();
        let (console, stopped) = guest.run(&made.tools, &jobs, |line| hear(&name, line, &mut tally))?;
        let verdict = judge(&console, &stopped, u64::try_from(jobs.len()).unwrap_or(u64::MAX));
        good &= matches!(verdict, Verdict::Good(_)) && tally.failed == 0;
        lines.push(format!(
            "{name} bare: {verdict}; {} (made ready in {built} s, run in {} s under {how})",
            tally.verdict(),
            start.elapsed().as_secs()
        ));
    }
    println!();
    for line in lines {
        println!("{line}");
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Passes a line on, the init's own in words.
fn hear(arch: &str, line: &str, tally: &mut Tally) {
    tally.line(line);
    match Said::read(line) {
        Some(Said::Up { kernel }) => println!("{arch}| guest: up, kernel {kernel}"),
        Some(Said::Start { name }) => println!("{arch}| guest: {name} starts"),
        Some(Said::End { name, end, tenths, left }) => {
            println!("{arch}| guest: {name}: {}, {}.{} s", verdict::ended(&end, left), tenths / 10, tenths % 10);
        }
        Some(Said::Verdict { .. }) => println!("{arch}| guest: all jobs are over"),
        Some(Said::Trouble { why }) => println!("{arch}| guest: {why}"),
        None if line.is_empty() => {}
        None => println!("{arch}| {line}"),
    }
}
