//! `vm/kernels.toml`: what a guest is made of, and the sum that names what was made of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sum;

/// The file, built in: a cache made by another version of it is never taken for ours.
const TEXT: &str = include_str!("../kernels.toml");
/// Changed when the code makes something else of the same recipe.
const MADE_BY: u32 = 2;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) archive: Archive,
    pub(crate) tools: Tools,
    pub(crate) root: Root,
    pub(crate) arch: BTreeMap<String, Arch>,
    pub(crate) whole: Whole,
    pub(crate) variant: BTreeMap<String, Variant>,
}

/// The boot with systemd.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Whole {
    /// On the kernel's command line.
    pub(crate) append: String,
    /// What it is there to show.
    pub(crate) shows: String,
    /// The test programs run in it when none is named: those for which the boot makes a difference.
    pub(crate) programs: Vec<String>,
    /// What is run in it beside them.
    pub(crate) job: Vec<ScriptJob>,
}

/// Another host than Debian's own: it lacks something, or has another kernel.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// On the kernel's command line.
    #[serde(default)]
    pub(crate) append: String,
    /// What it is there to show.
    pub(crate) shows: String,
    /// Its own kernel, by architecture; elsewhere it is Debian's.
    #[serde(default)]
    pub(crate) kernel: BTreeMap<String, Kernel>,
    /// The test programs run in it when none is named.
    #[serde(default)]
    pub(crate) programs: Vec<String>,
    /// What is run in it beside them.
    #[serde(default)]
    pub(crate) job: Vec<ScriptJob>,
}

/// A shell script, how it must end and what it must say.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptJob {
    pub(crate) name: String,
    /// With the release programs on its PATH; a line's end is read as a space.
    pub(crate) script: String,
    #[serde(default)]
    pub(crate) exit: i32,
    /// Each of these stands in a line of its output.
    #[serde(default)]
    pub(crate) says: Vec<String>,
}

/// Where packages come from.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Archive {
    /// The release's name, for messages.
    pub(crate) release: String,
    /// Lines of sources.list(5) without the first word.
    pub(crate) sources: Vec<String>,
}

/// Programs for the host.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tools {
    pub(crate) packages: Vec<String>,
}

/// The root of a bare guest.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Root {
    pub(crate) packages: Vec<String>,
    /// Free space, in MiB.
    pub(crate) free_mib: u64,
}

/// One architecture of guests.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arch {
    /// Debian's name for it.
    pub(crate) debian: String,
    /// Below the kernel's modules, in the order to load them.
    pub(crate) modules: Vec<String>,
    pub(crate) kernel: Kernel,
}

/// A kernel: packages of one version.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    pub(crate) version: String,
    /// What this kernel is there to show.
    pub(crate) shows: String,
    /// The packages, each with its file's SHA-256 in hexadecimal.
    pub(crate) packages: BTreeMap<String, String>,
}

impl Recipe {
    /// The recipe built in.
    ///
    /// # Errors
    /// What is not as it must be in `vm/kernels.toml`.
    pub(crate) fn read() -> Result<Self, String> {
        Self::parse(TEXT)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let recipe: Self = toml::from_str(text).map_err(|e| format!("vm/kernels.toml: {e}"))?;
        let own = recipe.arch.values().map(|it| &it.kernel);
        let kernels = own.chain(recipe.variant.values().flat_map(|it| it.kernel.values()));
        for (package, sum) in kernels.flat_map(|it| &it.packages) {
            if sum.len() != 64 || !sum.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f')) {
                return Err(format!("vm/kernels.toml: {package}: {sum:?} is no SHA-256 in lower case"));
            }
        }
        Ok(recipe)
    }

    /// One architecture.
    ///
    /// # Errors
    /// Its name is none of those there are, which are then said.
    pub(crate) fn arch(&self, name: &str) -> Result<&Arch, String> {
        let names = || self.arch.keys().cloned().collect::<Vec<_>>().join(", ");
        self.arch.get(name).ok_or_else(|| format!("no architecture {name:?}: there are {}", names()))
    }

    /// One variant.
    ///
    /// # Errors
    /// Its name is none of those there are, which are then said.
    pub(crate) fn variant(&self, name: &str) -> Result<&Variant, String> {
        let names = || self.variant.keys().cloned().collect::<Vec<_>>().join(", ");
        self.variant.get(name).ok_or_else(|| format!("no variant {name:?}: there are {}", names()))
    }

    /// What the host's tools are called in the cache.
    ///
    /// # Errors
    /// As JSON has them; none is known.
    pub(crate) fn tools_name(&self, host: &str) -> Result<String, String> {
        Ok(format!("tools-{host}-{}", short(&(&self.archive, &self.tools))?))
    }

    /// What a root image is called there.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn root_name(&self, arch: &Arch) -> Result<String, String> {
        Ok(format!("root-{}-{}.ext4", arch.debian, short(&(&self.archive, &self.root, &arch.debian))?))
    }
}

impl Kernel {
    /// What it is called in the cache, unpacked.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn name(&self) -> Result<String, String> {
        Ok(format!("kernel-{}-{}", self.version, short(&self.packages)?))
    }

    /// Its packages, as a person lists them.
    pub(crate) fn packages(&self) -> String {
        self.packages.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

fn short(of: &impl Serialize) -> Result<String, String> {
    let text = serde_json::to_string(&(MADE_BY, of)).map_err(|e| e.to_string())?;
    Ok(sum::of_bytes(text.as_bytes()).chars().take(12).collect())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_built_in_is_whole_and_another_has_other_names() {
        let recipe = Recipe::read().unwrap();
        assert_eq!(recipe.arch.keys().map(String::as_str).collect::<Vec<_>>(), ["aarch64", "x86_64"]);
        let mut other = recipe.clone();
        other.root.packages.push(String::from("mawk"));
        let arch = recipe.arch("x86_64").unwrap();
        assert_ne!(recipe.root_name(arch).unwrap(), other.root_name(arch).unwrap());
        assert_eq!(recipe.tools_name("amd64").unwrap(), other.tools_name("amd64").unwrap());
        assert!(recipe.arch("riscv64").unwrap_err().contains("aarch64, x86_64"));
    }

    #[test]
    fn a_key_it_does_not_know_and_a_sum_that_is_none_are_refused() {
        let other = TEXT.replace("[archive]", "[archive]\nmirror = 'x'");
        assert!(Recipe::parse(&other).unwrap_err().contains("mirror"));
        let recipe = Recipe::read().unwrap();
        for kernel in [&recipe.arch["x86_64"].kernel, &recipe.variant["newest"].kernel["aarch64"]] {
            let (package, sum) = kernel.packages.first_key_value().unwrap();
            assert!(Recipe::parse(&TEXT.replace(sum, &sum[1..])).unwrap_err().contains(package));
        }
    }
}
