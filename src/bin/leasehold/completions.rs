//! The completion scripts, made of the options.

use clap::{Arg, ArgAction, Command, CommandFactory as _, ValueEnum as _, ValueHint};
use clap_complete::Shell;

use super::codes::{Exit, Failure};
use super::options::Cli;
use super::output::print;

/// What bash calls instead of clap's function. After KEY comes a command, which takes none of leasehold's options.
const AFTER_KEY: &str = r#"
# After KEY come a command and its arguments.
_leasehold_line() {
    local at word key= valued= ended= command
    case ${COMP_WORDS[1]-} in
        run | elect | steal) ;;
        *) _leasehold "$@"; return ;;
    esac
    for (( at = 2; at < COMP_CWORD; at++ )); do
        word=${COMP_WORDS[at]}
        if _leasehold_joined "$at"; then valued=; continue; fi
        if [[ $valued ]]; then valued=; continue; fi
        if [[ $ended ]]; then key=$at; break; fi
        case $word in
            --) ended=1 ;;
            VALUED) valued=1 ;;
            -*) ;;
            *) key=$at; break ;;
        esac
    done
    if [[ -z $key ]]; then
        # clap's function expects the option as the previous word, and not the = between option and value.
        if [[ ${3-} == = ]]; then set -- "$1" "$2" "${COMP_WORDS[COMP_CWORD - 2]}"; fi
        _leasehold "$@"
        return
    fi
    COMPREPLY=()
    command=$(( key + 1 ))
    while (( command <= COMP_CWORD )) && _leasehold_joined "$command"; do (( command++ )); done
    if (( command < COMP_CWORD )) && [[ ${COMP_WORDS[command]} == -- ]]; then (( command++ )); fi
    if (( command == COMP_CWORD )); then
        local IFS=$'\n'
        COMPREPLY=( $(compgen -c -- "$2") )
    elif (( command < COMP_CWORD )); then
        # The package bash-completion defines one of these. Without it, bash offers the names of files.
        if declare -F _comp_command_offset >/dev/null; then _comp_command_offset "$command"
        elif declare -F _command_offset >/dev/null; then _command_offset "$command"
        fi
    fi
}

# Whether this word continues the one before: bash splits words at = and :, as in --store=sqlite:leases.db.
_leasehold_joined() {
    [[ ${COMP_WORDS[$1]} == [=:]* || ${COMP_WORDS[$1 - 1]} == [=:] ]]
}
"#;

/// What fish calls in addition.
const AFTER_KEY_IN_FISH: &str = r#"
# After KEY come a command and its arguments. This prints the number of the command's first word, and fails until KEY is complete.
function __leasehold_command_at
    set -l words (commandline -opc)
    contains -- "$words[2]" run elect steal; or return
    set -l valued
    set -l ended
    for at in (seq 3 (count $words))
        if test -n "$valued"
            set valued
        else if test -n "$ended"; or not string match -q -- '-*' $words[$at]
            test "$words[$(math $at + 1)]" = --; and set at (math $at + 1)
            math $at + 1
            return
        else if test "$words[$at]" = --
            set ended 1
        else if string match -rq -- '^(VALUED)$' $words[$at]
            set valued 1
        end
    end
    return 1
end

function __leasehold_complete_command
    set -l words (commandline -opc)
    set -l at (__leasehold_command_at)
    set -l command
    test $at -le (count $words); and set command (string escape -- $words[$at..-1])
    # As one word: otherwise a line that begins with a dash would be an option of this.
    complete -C(string join -- ' ' $command (commandline -ct))
end

complete -c leasehold -n "__leasehold_command_at >/dev/null" -x -a "(__leasehold_complete_command)"
"#;

pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let mut program = parted(Cli::command());
    clap_complete::generate(shell, &mut program, "leasehold", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Bash => print(&for_bash(&script, &program)),
        Shell::Fish => print(&for_fish(&script, &program)),
        // With two colons, zsh would complete KEY as if it were the command.
        Shell::Zsh => print(&script.replace("'*::command", "'*:::command")),
        _ => print(&script),
    }
}

fn for_bash(script: &str, program: &Command) -> String {
    let (functions, registered) = script.split_at(script.find("\nif [[ \"${BASH_VERSINFO").unwrap_or(script.len()));
    let valued = patterns(program, |long| format!("--{long}"), |short| format!("-{short} | -[!-]*{short}"));
    let after_key = AFTER_KEY.replace("VALUED", &valued.join(" | "));
    format!("{functions}{after_key}{}", registered.replace("-F _leasehold ", "-F _leasehold_line "))
}

fn for_fish(script: &str, program: &Command) -> String {
    let valued = patterns(program, |long| format!("--{long}"), |short| format!("-([^-].*)?{short}"));
    let shells = Shell::value_variants().iter().map(Shell::to_string).collect::<Vec<_>>().join(" ");
    let shells =
        format!("complete -c leasehold -n \"__fish_leasehold_using_subcommand completions\" -x -a \"{shells}\"\n");
    let before_key = TAKES_COMMAND.iter().fold(script.to_owned(), |script, name| {
        let condition = format!("-n \"__fish_leasehold_using_subcommand {name}");
        script.replace(&format!("{condition}\""), &format!("{condition}; and not __leasehold_command_at >/dev/null\""))
    });
    format!("{before_key}{shells}{}", AFTER_KEY_IN_FISH.replace("VALUED", &valued.join("|")))
}

const TAKES_COMMAND: [&str; 3] = ["run", "elect", "steal"];

/// Makes two arguments of KEY and COMMAND, so that options end at KEY. To the parser of the program they are one list of words.
fn parted(program: Command) -> Command {
    TAKES_COMMAND.into_iter().fold(program, |program, name| {
        program.mut_subcommand(name, |command| {
            let key =
                |words: Arg| words.action(ArgAction::Set).num_args(1).trailing_var_arg(false).value_names(["KEY"]);
            let key = |words| key(words).value_hint(ValueHint::Other);
            let rest = Arg::new("command").num_args(0..).trailing_var_arg(true);
            command.mut_arg("words", key).arg(rest.value_hint(ValueHint::CommandWithArguments))
        })
    })
}

/// The shell's patterns for the options whose value is the next word, by their long and short names.
fn patterns(program: &Command, of_long: fn(&str) -> String, of_short: fn(char) -> String) -> Vec<String> {
    let commands = program.get_subcommands().filter(|command| TAKES_COMMAND.contains(&command.get_name()));
    let options = commands.flat_map(Command::get_opts).filter(|option| option.get_action().takes_values());
    let mut patterns: Vec<_> = options
        .flat_map(|option| {
            let long = option.get_long().into_iter().chain(option.get_all_aliases().unwrap_or_default());
            long.map(of_long).chain(option.get_short().map(of_short)).collect::<Vec<_>>()
        })
        .collect();
    patterns.sort();
    patterns.dedup();
    patterns
}
