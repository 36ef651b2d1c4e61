//! `cargo vm list|image|shell|test`: whole hosts under QEMU.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use crate::image::{Cache, Kernel, Tools};
use crate::programs::{Packed, Programs};
use crate::qemu::Guest;
use crate::recipe::{Recipe, ScriptJob, Variant};
use crate::tally::Tally;
use crate::verdict::{self, Verdict, judge};
use crate::words::{Job, Said};
use crate::workspace::Workspace;
use crate::{image, packages, programs};

/// What one guest is made of, there and ready.
struct Made {
    tools: Tools,
    kernel: Kernel,
    root: std::path::PathBuf,
}

/// Holds the cache no longer than that: once a thing is made it is only read.
fn make(recipe: &Recipe, name: &str, variant: Option<&Variant>) -> Result<Made, String> {
    let cache = Cache::open(recipe)?;
    let arch = recipe.arch(name)?;
    let kernel = variant.and_then(|it| it.kernel.get(name)).unwrap_or(&arch.kernel);
    Ok(Made { tools: cache.tools()?, kernel: cache.kernel(arch, kernel)?, root: cache.root(arch)? })
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
        println!("{name}: {}: {}", arch.kernel.packages(), arch.kernel.shows);
        println!("  kernel {}, root {}", there(arch.kernel.name()?), there(recipe.root_name(arch)?));
    }
    println!("boot bare: our own init is PID 1");
    println!("boot whole: {}", recipe.whole.shows);
    for (name, variant) in &recipe.variant {
        println!("variant {name}: {}", variant.shows);
        for (arch, kernel) in &variant.kernel {
            println!("  {arch}: {}, {}", kernel.packages(), there(kernel.name()?));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `cargo vm image ARCH`: makes what is not there.
pub(crate) fn image(args: &[OsString]) -> Result<ExitCode, String> {
    let words = words(args)?;
    let [word] = words.as_slice() else { return Err(String::from("image takes an architecture, or all")) };
    let recipe = Recipe::read()?;
    let names = architectures(&recipe, Some(word))?;
    packages::require_for_guests("cargo vm image")?;
    for name in names {
        let made = make(&recipe, &name, None)?;
        println!("{name}: kernel {}", made.kernel.image.display());
        println!("{name}: root {}", made.root.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// `cargo vm shell [--whole] [--variant V] ARCH`: a console in a guest with the programs in it.
pub(crate) fn shell(args: &[OsString]) -> Result<ExitCode, String> {
    let recipe = Recipe::read()?;
    let asked = Asked::read(&recipe, words(args)?)?;
    let ([name], []) = (asked.architectures.as_slice(), asked.names.as_slice()) else {
        return Err(String::from("shell takes one architecture"));
    };
    packages::require_for_guests("cargo vm shell")?;
    let workspace = Workspace::find()?;
    let programs = Programs::build(&workspace, name, false)?;
    let made = make(&recipe, name, asked.variant(&recipe)?)?;
    let packed = programs.pack(&[], asked.whole, &made.kernel.modules)?;
    let append = asked.append(&recipe)?;
    eprintln!("cargo vm: exit ends the guest; Ctrl-A X ends QEMU. ocx and ocx-supervisor are on its PATH.");
    guest(name, &made, &packed, &append).shell(&made.tools)?;
    Ok(ExitCode::SUCCESS)
}

fn guest<'a>(arch: &'a str, made: &'a Made, packed: &Packed, append: &'a str) -> Guest<'a> {
    let (initramfs, programs) = (packed.initramfs(), packed.disk());
    Guest { arch, kernel: &made.kernel.image, initramfs, root: &made.root, programs, append }
}

/// What `cargo vm test` is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) architectures: Vec<String>,
    /// A host of this name in `vm/kernels.toml`; none for Debian's own.
    pub(crate) variant: Option<String>,
    /// systemd is PID 1.
    pub(crate) whole: bool,
    /// Test programs by name, with or without a filter, to be run alone; none for all that this guest is for.
    pub(crate) names: Vec<String>,
    /// The programs of a short form in place of all, beside the guest's own scripts.
    pub(crate) programs: Vec<String>,
}

impl Asked {
    fn read(recipe: &Recipe, words: Vec<String>) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut plain = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--whole" => asked.whole = true,
                "--variant" => {
                    let name = words.next().ok_or("--variant takes a name; cargo vm list says which there are")?;
                    recipe.variant(&name)?;
                    asked.variant = Some(name);
                }
                other if other.starts_with('-') => {
                    return Err(format!("no option {other}: there are --whole and --variant NAME"));
                }
                _ => plain.push(word),
            }
        }
        asked.architectures = architectures(recipe, plain.first().map(String::as_str))?;
        asked.names = plain.into_iter().skip(1).collect();
        Ok(asked)
    }

    fn variant<'a>(&self, recipe: &'a Recipe) -> Result<Option<&'a Variant>, String> {
        self.variant.as_ref().map(|it| recipe.variant(it)).transpose()
    }

    /// What of it stands on the kernel's command line.
    fn append(&self, recipe: &Recipe) -> Result<String, String> {
        let variant = self.variant(recipe)?.map_or("", |it| &it.append);
        Ok(format!("{} {variant}", if self.whole { &recipe.whole.append } else { "" }))
    }

    /// The scripts that belong to this guest: all, or those named. What is asked for by name is run alone.
    fn scripts(&self, recipe: &Recipe) -> Result<Vec<ScriptJob>, String> {
        let whole = if self.whole { recipe.whole.job.as_slice() } else { &[] };
        let mut scripts = [whole, self.variant(recipe)?.map_or(&[], |it| &it.job)].concat();
        scripts.retain(|it| self.names.is_empty() || self.names.contains(&it.name));
        Ok(scripts)
    }

    /// The programs to run: those named, or those of a variant or of the whole boot, or all.
    fn programs(&self, recipe: &Recipe, programs: &Programs) -> Result<Vec<Job>, String> {
        match (self.names.as_slice(), self.programs.as_slice(), self.variant(recipe)?) {
            ([], [], Some(variant)) => programs.named(&variant.programs),
            ([], [], None) if self.whole => programs.named(&recipe.whole.programs),
            ([], [], None) => Ok(programs.jobs.clone()),
            ([], short, _) => programs.named(short),
            (names, ..) => {
                let scripts = self.scripts(recipe)?;
                let is_script = |name: &&String| scripts.iter().any(|it| it.name == **name);
                programs.named(&names.iter().filter(|name| !is_script(name)).cloned().collect::<Vec<_>>())
            }
        }
    }

    /// Whether the programs with failpoints are needed.
    fn crashes(&self) -> bool {
        let named = |it: &String| it.split('/').next().is_some_and(|it| programs::WITH_FAILPOINTS.contains(&it));
        self.names.iter().any(named) || self.names.is_empty() && self.variant.is_none() && !self.whole
    }

    /// What the line about this guest calls it.
    pub(crate) fn title(&self) -> String {
        let boot = if self.whole { "whole" } else { "bare" };
        self.variant.as_ref().map_or_else(|| String::from(boot), |it| format!("{boot}, {it}"))
    }
}

/// How a guest did.
pub(crate) struct Came {
    /// The line about it.
    pub(crate) line: String,
    /// Its verdict is good, and so is every test counted.
    pub(crate) well: bool,
    pub(crate) tally: Tally,
}

/// `cargo vm test [--whole] [--variant NAME] [ARCH|all [NAME…]]`: one line a guest at the end; it fails when one of them
/// is not ok.
pub(crate) fn test(args: &[OsString]) -> Result<ExitCode, String> {
    let recipe = Recipe::read()?;
    let asked = Asked::read(&recipe, words(args)?)?;
    packages::require_for_guests("cargo vm test")?;
    let workspace = Workspace::find()?;
    let mut came = Vec::new();
    for name in &asked.architectures {
        let programs = Programs::build(&workspace, name, asked.crashes())?;
        came.push(one(&recipe, name, &asked, &programs)?);
    }
    println!();
    if asked.variant.is_none() && asked.names.is_empty() {
        for left in programs::left_out() {
            println!("left out: {left}");
        }
    }
    for one in &came {
        println!("{}", one.line);
    }
    Ok(if came.iter().all(|it| it.well) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes what an architecture's guests, or those of a variant, are made of; nothing is done when it is there.
///
/// # Errors
/// What cannot be fetched or made.
pub(crate) fn prepare(recipe: &Recipe, name: &str, variant: Option<&str>) -> Result<(), String> {
    let variant = variant.map(|it| recipe.variant(it)).transpose()?;
    make(recipe, name, variant).map(drop)
}

/// One guest, from what it is made of to its verdict.
pub(crate) fn one(recipe: &Recipe, name: &str, asked: &Asked, programs: &Programs) -> Result<Came, String> {
    let scripts = asked.scripts(recipe)?;
    let jobs = [programs::of_scripts(&scripts), asked.programs(recipe, programs)?].concat();
    let made = make(recipe, name, asked.variant(recipe)?)?;
    let packed = programs.pack(&jobs, asked.whole, &made.kernel.modules)?;
    let append = asked.append(recipe)?;
    let guest = guest(name, &made, &packed, &append);
    let how = if guest.kvm() { "KVM" } else { "TCG" };
    let mut tally = Tally::default();
    let start = Instant::now();
    let (console, stopped) = guest.run(&made.tools, &jobs, |line| hear(name, line, &mut tally))?;
    let verdict = judge(&console, &stopped, &jobs);
    let unsaid = scripts.iter().filter_map(|it| {
        verdict::unsaid(&console, &it.name, &it.says).map(|words| format!("{} did not say {words:?}", it.name))
    });
    let none = jobs.iter().filter(|it| verdict::ran_none(&console, &it.name));
    let unsaid: Vec<String> = unsaid.chain(none.map(|it| format!("{} ran no test", it.name))).collect();
    let well = matches!(verdict, Verdict::Good(_)) && tally.failed == 0 && unsaid.is_empty();
    let unsaid = if unsaid.is_empty() { String::new() } else { format!("; FAILED: {}", unsaid.join(", ")) };
    let line = format!(
        "{name} {}: {verdict}{unsaid}; {} ({} s under {how})",
        asked.title(),
        tally.verdict(),
        start.elapsed().as_secs()
    );
    Ok(Came { line, well, tally })
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Asked, String> {
        Asked::read(&Recipe::read().unwrap(), words.iter().map(|it| String::from(*it)).collect())
    }

    #[test]
    fn options_stand_anywhere_and_what_is_none_is_told() {
        let asked = read(&["aarch64", "--whole", "link", "--variant", "no-userns", "try"]).unwrap();
        assert_eq!((asked.architectures.as_slice(), asked.whole), ([String::from("aarch64")].as_slice(), true));
        assert_eq!((asked.variant.as_deref(), asked.names.len()), (Some("no-userns"), 2));
        assert_eq!(read(&["all"]).unwrap().architectures, ["aarch64", "x86_64"]);
        assert_eq!(read(&[]).unwrap().architectures, [std::env::consts::ARCH]);
        for (words, said) in [
            (["--variant"].as_slice(), "takes a name"),
            (&["--variant", "old"], "no variant \"old\""),
            (&["--hole"], "no option --hole"),
            (&["riscv64"], "no architecture \"riscv64\""),
        ] {
            let why = read(words).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn scripts_belong_to_a_boot_and_a_variant_and_not_to_programs_that_are_named() {
        let recipe = Recipe::read().unwrap();
        let count = |words: &[&str]| read(words).unwrap().scripts(&recipe).unwrap().len();
        assert_eq!(count(&["x86_64"]), 0);
        assert!(count(&["--whole", "x86_64"]) > 0);
        assert!(count(&["--variant", "no-userns"]) > 0);
        assert_eq!(count(&["--variant", "no-userns", "x86_64", "try"]), 0);
    }
}
