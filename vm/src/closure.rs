//! What a package is linked with, from `cargo metadata`: pure, so that a made-up workspace can show it refuses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::licences;

/// The root process may be linked with this many crates and no more, its own and the workspace's included.
pub(crate) const SUPERVISOR_CRATES_MAX: usize = 40;

/// What the root process is never linked with: no HTTP, no SQLite, no TLS, no async runtime.
pub(crate) const SUPERVISOR_NEVER: &[&str] = &[
    "async-std",
    "async-executor",
    "curl",
    "futures-executor",
    "h2",
    "hyper",
    "libsqlite3-sys",
    "native-tls",
    "openssl",
    "openssl-sys",
    "reqwest",
    "ring",
    "rusqlite",
    "rustls",
    "schannel",
    "smol",
    "sqlx",
    "tokio",
    "ureq",
    "ureq-proto",
];

/// The packages of one workspace and who depends on whom.
pub(crate) struct Graph<'a> {
    packages: BTreeMap<&'a str, &'a Value>,
    nodes: BTreeMap<&'a str, &'a Value>,
    members: Vec<&'a str>,
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

impl<'a> Graph<'a> {
    pub(crate) fn read(metadata: &'a Value) -> Result<Self, String> {
        let nodes = metadata.get("resolve").ok_or("cargo metadata: no resolve")?;
        let by_id = |values: &'a [Value]| values.iter().filter_map(|v| Some((text(v, "id")?, v))).collect();
        let members = list(metadata, "workspace_members").iter().filter_map(Value::as_str).collect();
        Ok(Self { packages: by_id(list(metadata, "packages")), nodes: by_id(list(nodes, "nodes")), members })
    }

    fn name(&self, id: &str) -> &'a str {
        self.packages.get(id).and_then(|package| text(package, "name")).unwrap_or("?")
    }

    /// Everything reached from these packages; with `linked`, by normal dependencies alone.
    fn reach(&self, from: &[&'a str], linked: bool) -> BTreeSet<&'a str> {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = from.to_vec();
        while let Some(id) = next.pop() {
            if !seen.insert(id) {
                continue;
            }
            for dependency in self.nodes.get(id).map_or(&[][..], |node| list(node, "deps")) {
                // A normal dependency's kind is null; the others are "build" and "dev".
                let normal =
                    list(dependency, "dep_kinds").iter().any(|kind| kind.get("kind").is_none_or(Value::is_null));
                if let (true, Some(package)) = (normal || !linked, text(dependency, "pkg")) {
                    next.push(package);
                }
            }
        }
        seen
    }

    /// What the workspace's package of this name is linked with, itself included, by name.
    pub(crate) fn closure(&self, package: &str) -> Result<Vec<&'a str>, String> {
        let root = self.members.iter().find(|id| self.name(id) == package);
        let root = root.ok_or_else(|| format!("the workspace has no package {package}"))?;
        Ok(self.reach(&[*root], true).into_iter().map(|id| self.name(id)).collect())
    }

    /// Whether the root process stays small enough to read.
    pub(crate) fn check_supervisor(&self) -> Result<String, String> {
        let closure = self.closure("supervisor")?;
        let never: Vec<&str> = closure.iter().filter(|name| SUPERVISOR_NEVER.contains(name)).copied().collect();
        if !never.is_empty() {
            return Err(format!("ocx-supervisor is linked with {}, which it never may be", never.join(", ")));
        }
        let count = closure.len();
        if count > SUPERVISOR_CRATES_MAX {
            return Err(format!("{count} crates, more than {SUPERVISOR_CRATES_MAX}: {}", closure.join(" ")));
        }
        Ok(format!("{count} crates of {SUPERVISOR_CRATES_MAX}"))
    }

    /// Whether everything linked, built with or tested with is under a free licence.
    pub(crate) fn check_licences(&self) -> Result<String, String> {
        let all = self.reach(&self.members, false);
        let mut faults = Vec::new();
        for id in &all {
            let licence = self.packages.get(id).and_then(|package| text(package, "license")).unwrap_or("");
            match licences::is_free(licence) {
                Ok(true) => {}
                Ok(false) => faults.push(format!("{} is {licence}", self.name(id))),
                Err(why) => faults.push(format!("{}: {why}", self.name(id))),
            }
        }
        if faults.is_empty() { Ok(format!("{} packages", all.len())) } else { Err(faults.join("; ")) }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test ends where a step of it fails")]
mod tests {
    use super::*;
    use serde_json::json;

    /// A workspace of `supervisor`, linked with `names`, each under `licence`; tested with ureq, built with openssl.
    fn workspace(names: &[String], licence: &str) -> Value {
        let package = |name: &str, licence: &str| json!({"id": name, "name": name, "license": licence});
        let mut packages = vec![package("supervisor", "MIT"), package("ureq", "MIT"), package("openssl", "MIT")];
        packages.extend(names.iter().map(|name| package(name, licence)));
        let dep = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let mut deps = vec![dep("ureq", json!("dev")), dep("openssl", json!("build"))];
        // A chain, so that what is reached through another counts.
        let mut nodes = Vec::new();
        if let Some(first) = names.first() {
            deps.push(dep(first, Value::Null));
        }
        for (name, next) in names.iter().zip(names.iter().skip(1)) {
            nodes.push(json!({"id": name, "deps": [dep(next, Value::Null)]}));
        }
        nodes.push(json!({"id": "supervisor", "deps": deps}));
        json!({"packages": packages, "workspace_members": ["supervisor"], "resolve": {"nodes": nodes}})
    }

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_supervisor_linked_with_ureq_fails_and_without_it_passes() {
        let with = workspace(&named(&["mio", "ureq-like", "ureq"]), "MIT");
        assert!(Graph::read(&with).unwrap().check_supervisor().unwrap_err().contains("linked with ureq"));
        let without = workspace(&named(&["mio", "ureq-like"]), "MIT");
        assert_eq!(Graph::read(&without).unwrap().check_supervisor().unwrap(), "3 crates of 40");
    }

    #[test]
    fn one_crate_too_many_fails() {
        let names: Vec<String> = (0..39).map(|n| format!("crate-{n}")).collect();
        assert!(Graph::read(&workspace(&names, "MIT")).unwrap().check_supervisor().is_ok());
        let names: Vec<String> = (0..40).map(|n| format!("crate-{n}")).collect();
        assert!(
            Graph::read(&workspace(&names, "MIT")).unwrap().check_supervisor().unwrap_err().starts_with("41 crates")
        );
    }

    #[test]
    fn a_licence_that_is_not_free_or_not_said_fails() {
        let check = |licence| Graph::read(&workspace(&named(&["mio"]), licence)).unwrap().check_licences();
        assert_eq!(check("MIT OR SSPL-1.0").unwrap(), "4 packages");
        assert!(check("SSPL-1.0").unwrap_err().contains("mio is SSPL-1.0"));
        assert!(check("").unwrap_err().contains("mio"));
    }
}
