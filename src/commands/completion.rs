//! `perfx completion` prints a completion script for a shell, and the values that this script offers.

mod values;

use std::ffi::OsString;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use clap::Args;
use clap_complete::{Shell, generate};
use perfx_passes::PassSpec;

use crate::io::output::stdout;

/// Print a completion script for a shell
///
/// In bash, zsh and fish, it also completes recordings, passes and their options, and names in the recording
/// on the line: events, functions, DSOs, threads and cgroups.
///
/// Examples:
///   perfx completion bash > ~/.local/share/bash-completion/completions/perfx
///   perfx completion zsh > ~/.zfunc/_perfx
///   perfx completion fish > ~/.config/fish/completions/perfx.fish
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completion {
    /// Shell to print the script for
    #[arg(value_name = "SHELL")]
    shell: Shell,
    /// For the scripts: print what the last of these words can be completed to, one per line
    #[arg(long, hide = true, value_name = "WORD", num_args = 1.., allow_hyphen_values = true)]
    values: Vec<OsString>,
}

/// Runs `perfx` first; if it prints no values, clap's script completes commands, options and files.
const BASH: &str = r#"
_perfx_or_values() {
    local line=${COMP_LINE:0:COMP_POINT} words value values
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    mapfile -t values < <(command perfx completion bash --values "${words[@]}" 2> /dev/null)
    if ((${#values[@]} == 0)); then
        _perfx "$@"
        return
    fi
    # bash has split the word at these.
    local word=${words[${#words[@]} - 1]}
    local before=${word%"${word##*[:=]}"}
    COMPREPLY=()
    for value in "${values[@]}"; do
        [[ $value == */ || $value == *: || $value == *= ]] && compopt -o nospace 2> /dev/null
        printf -v value %q "${value#"$before"}"
        COMPREPLY+=("$value")
    done
}
complete -F _perfx_or_values -o nosort -o bashdefault -o default perfx
"#;

const ZSH: &str = r#"
_perfx() {
    local -a values
    values=(${(f)"$(command perfx completion zsh --values "${(@Q)words[1,CURRENT]}" 2> /dev/null)"})
    if (( ! $#values )); then
        _perfx_options "$@"
        return
    fi
    local -a whole=(${values:#*[/:=]}) open=(${(M)values:#*[/:=]})
    (( $#whole )) && compadd -Q -- ${(q-)whole}
    (( $#open )) && compadd -Q -S '' -- ${(q-)open}
    return 0
}
"#;

const FISH: &str = r#"
function __perfx_values
    command perfx completion fish --values (commandline -opc) (commandline -ct) 2>/dev/null
end
function __perfx_has_values
    set -g __perfx_found (__perfx_values)
    count $__perfx_found >/dev/null
end
complete -c perfx -n __perfx_has_values -f -a '$__perfx_found'
"#;

impl Completion {
    pub(crate) fn run(&self, mut command_line: clap::Command, passes: &[PassSpec]) -> Result<u8> {
        if !self.values.is_empty() {
            let values = values::values(&command_line, passes, &self.values);
            let mut out = stdout();
            values.iter().try_for_each(|value| writeln!(out, "{value}"))?;
            return Ok(0);
        }
        // `generate` panics on a closed pipe, so not straight to standard output.
        let mut script = Vec::new();
        generate(self.shell, &mut command_line, "perfx", &mut script);
        let mut script = String::from_utf8(script).context("the script is not text")?;
        match self.shell {
            Shell::Bash => script += BASH,
            Shell::Zsh => {
                // After the first completion, zsh calls the function named like the file.
                script = script.replacen("\n_perfx() {", "\n_perfx_options() {", 1);
                let end = script.rfind("\nif [ \"$funcstack[1]\"").unwrap_or(script.len());
                script.insert_str(end, ZSH);
            }
            Shell::Fish => {
                // fish's argparse refuses other short options than letters and digits, and completes nothing.
                script = script.replacen(" @/threads= ", " threads= ", 1) + FISH;
                // For the value of an option, fish looks only at the lines of that option.
                for (long, short) in values::options(&command_line) {
                    let short = short.map(|short| format!(" -s {short}")).unwrap_or_default();
                    script += &format!(
                        "complete -c perfx -n __perfx_has_values -l {long}{short} -x -a '$__perfx_found'\n"
                    );
                }
            }
            _ => {}
        }
        stdout().write_all(script.as_bytes())?;
        Ok(0)
    }
}
