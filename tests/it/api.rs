//! The public items of the packages that are meant for others equal those of snapshots, so that every change of
//! their APIs is noticed and reviewed.
//!
//! They are read from the pages of rustdoc, which resolves macros and re-exports. Rejected: rustdoc's JSON,
//! which needs a nightly compiler.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::house::PUBLIC;
use crate::support::{Stdin, root, run, skipped, target};

/// The sections before a page's methods through Deref, and before its traits for all types.
const SECTIONS: [&str; 6] = [
    "id=\"deref-methods",
    "id=\"trait-implementations\"",
    "id=\"synthetic-implementations\"",
    "id=\"blanket-implementations\"",
    "id=\"foreign-impls\"",
    "id=\"implementors\"",
];

/// The contents of the elements that begin with `start` and end with `end`.
fn elements<'a>(page: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    page.split(start).skip(1).filter_map(move |rest| rest.split_once(end)).map(|(inside, _)| inside)
}

/// The text of a piece of a page, without rustdoc's remarks about folded parts.
fn text(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        text += before;
        let folded = tag.starts_with("summary").then(|| tag.split_once("</summary>")).flatten();
        if tag.starts_with("/div") || tag.starts_with("br") {
            text.push('\n');
        }
        rest = folded.or_else(|| tag.split_once('>')).map_or("", |(_, rest)| rest);
    }
    text += rest;
    // The sign of a note about an iterator.
    let text = text
        .replace(" ⓘ", "")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'");
    text.replace("&nbsp;", " ").replace("&amp;", "&")
}

fn line(html: &str) -> String {
    let words = text(html).split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace("( ", "(").replace(", )", ")")
}

/// The section of a page that begins with `id`, up to the next one.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let Some(at) = page.find(id) else { return "" };
    let rest = &page[at + id.len()..];
    let end = SECTIONS.iter().filter_map(|next| rest.find(next)).min();
    &rest[..end.unwrap_or(rest.len())]
}

/// The declaration of an item, its methods, and the traits that it implements itself.
fn item(page: &str) -> String {
    let declared =
        elements(page, "<pre class=\"rust item-decl\"><code>", "</code></pre>").next().unwrap_or_default();
    let mut described = text(declared).trim_end().to_owned() + "\n";
    for header in elements(section(page, "id=\"implementations\""), " class=\"code-header\">", "</h") {
        let header = line(header);
        described += &if header.starts_with("impl") { header + "\n" } else { format!("    {header}\n") };
    }
    let traits =
        elements(section(page, "id=\"trait-implementations\""), "<h3 class=\"code-header\">", "</h3>");
    let traits: Vec<_> = traits.map(line).collect();
    let names = traits.iter().filter_map(|header| header.strip_prefix("impl")?.split_once(" for "));
    let mut names: Vec<_> = names.map(|(name, _)| name.trim()).collect();
    names.sort_unstable();
    if !names.is_empty() {
        described += &format!("traits: {}\n", names.join(", "));
    }
    described
}

/// Everything public in a package, by its path.
fn api(pages: &Path) -> String {
    let all = fs::read_to_string(pages.join("all.html")).unwrap();
    let items = elements(&all, "<li><a href=\"", "</a></li>").filter_map(|link| link.split_once("\">"));
    let mut items: Vec<_> = items.filter(|(file, _)| file.ends_with(".html")).collect();
    items.sort_by_key(|(_, path)| *path);
    let index = fs::read_to_string(pages.join("index.html")).unwrap();
    let again = elements(&index, "<code>pub use ", "</code>").map(|used| format!("pub use {}\n", line(used)));
    let mut described = again.collect::<String>();
    for (file, path) in items {
        described += &format!("\n# {path}\n{}", item(&fs::read_to_string(pages.join(file)).unwrap()));
    }
    described
}

#[test]
#[ignore = "exhaustive: builds the documentation"]
fn the_public_items_are_those_of_the_snapshots() {
    let cargo = |arguments: &[&str]| {
        run(Command::new(env!("CARGO")).args(arguments).current_dir(root()), Stdin::Null)
    };
    if Command::new(env!("CARGO")).arg("--version").output().is_err() {
        return skipped("the public items: cargo is not executable for this user");
    }
    let names = PUBLIC.map(|folder| format!("perfx-{}", folder.trim_start_matches("src/")));
    let packages: Vec<&str> = names.iter().flat_map(|name| ["-p", name]).collect();
    let target = target().to_str().unwrap();
    let arguments = ["doc", "--locked", "--offline", "--no-deps", "--target-dir", target];
    cargo(&[&arguments[..], &packages].concat()).done().unwrap();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/api"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let updates = std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always");
    for name in &names {
        // The libraries build_id and demangle.
        let pages = Path::new(target).join("doc");
        let [short, long] = [&name["perfx-".len()..], name].map(|name| pages.join(name.replace('-', "_")));
        let pages = if short.join("index.html").exists() { short } else { long };
        // The pages name the version of the compiler whose rustdoc wrote them: other versions print some
        // types differently.
        let index = fs::read_to_string(pages.join("index.html")).unwrap();
        let version = elements(&index, "data-rustdoc-version=\"", "\"").next().unwrap();
        let version = format!("rustdoc {}", version.split(' ').next().unwrap());
        let known = fs::read_to_string(root().join(format!("snapshots/api/{name}.snap"))).unwrap_or_default();
        if !known.contains(&version) && !updates {
            return skipped(&format!("the public items: the snapshot is not of {version}"));
        }
        settings.bind(|| insta::assert_snapshot!(&**name, version + "\n\n" + &api(&pages)));
    }
}
