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
use crate::{image, packages, programs};

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
    for (name, variant) in &recipe.variant {
        println!("variant {name}: {}", variant.shows);
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

/// What `cargo vm test` is asked.
struct Asked {
    architectures: Vec<String>,
    variant: Option<String>,
    /// Test programs by name; none for all.
    names: Vec<String>,
}

impl Asked {
    fn read(recipe: &Recipe, mut words: Vec<String>) -> Result<Self, String> {
        let mut variant = None;
        if let Some(at) = words.iter().position(|word| word == "--variant") {
            let after: Vec<String> = words.drain(at..).skip(1).collect();
            let (name, rest) =
                after.split_first().ok_or("--variant takes a name; cargo vm list says which there are")?;
            recipe.variant(name)?;
            variant = Some(name.clone());
            words.extend_from_slice(rest);
        }
        let architectures = architectures(recipe, words.first().map(String::as_str))?;
        Ok(Self { architectures, variant, names: words.into_iter().skip(1).collect() })
    }
}

/// `cargo vm test [--variant NAME] [ARCH|all [NAME…]]`: one line a guest at the end; it fails when one of them is not ok.
pub(crate) fn test(args: &[OsString]) -> Result<ExitCode, String> {
    let recipe = Recipe::read()?;
    let asked = Asked::read(&recipe, words(args)?)?;
    packages::require_for_guests("cargo vm test", &asked.architectures)?;
    let workspace = Workspace::find()?;
    let mut lines = Vec::new();
    let mut good = true;
    for name in &asked.architectures {
        let (line, well) = one(&workspace, &recipe, name, &asked)?;
        lines.push(line);
        good &= well;
    }
    println!();
    if asked.variant.is_none() && asked.names.is_empty() {
        for (program, test, why) in programs::LEFT_OUT {
            println!("left out: {program}/{test}: {why}");
        }
        println!("left out: tidy, which reads the sources; the whole boot, with systemd, which there is not yet");
    }
    for line in lines {
        println!("{line}");
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One guest from its making to its verdict: the line about it, and whether all is well.
fn one(workspace: &Workspace, recipe: &Recipe, name: &str, asked: &Asked) -> Result<(String, bool), String> {
    let start = Instant::now();
    let variant = asked.variant.as_ref().map(|it| recipe.variant(it)).transpose()?;
    let programs = Programs::build(workspace, name)?;
    let jobs = match variant {
        Some(variant) if asked.names.is_empty() => programs::of_variant(variant),
        _ => programs.named(&asked.names)?,
    };
    let made = make(recipe, name)?;
    let packed = programs.pack(name, &jobs, &made.kernel.modules)?;
    let guest = Guest { append: variant.map_or("", |it| &it.append), ..guest(name, &made, &packed) };
    let how = if guest.kvm() { "KVM" } else { "TCG" };
    let ready = start.elapsed().as_secs();
    let mut tally = Tally::default();
    let start = Instant::now();
    let (console, stopped) = guest.run(&made.tools, &jobs, |line| hear(name, line, &mut tally))?;
    let verdict = judge(&console, &stopped, &jobs);
    let said = variant.into_iter().filter(|_| asked.names.is_empty()).flat_map(|it| &it.job);
    let unsaid: Vec<String> = said
        .filter_map(|it| {
            verdict::unsaid(&console, &it.name, &it.says).map(|words| format!("{} did not say {words:?}", it.name))
        })
        .collect();
    let well = matches!(verdict, Verdict::Good(_)) && tally.failed == 0 && unsaid.is_empty();
    let boot = asked.variant.as_ref().map_or_else(|| String::from("bare"), |it| format!("bare, {it}"));
    let unsaid = if unsaid.is_empty() { String::new() } else { format!("; FAILED: {}", unsaid.join(", ")) };
    let line = format!(
        "{name} {boot}: {verdict}{unsaid}; {} (made ready in {ready} s, run in {} s under {how})",
        tally.verdict(),
        start.elapsed().as_secs()
    );
    Ok((line, well))
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
