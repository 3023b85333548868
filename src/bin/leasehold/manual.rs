//! The manual page, made of the options.

use clap::CommandFactory as _;

use super::codes::{Exit, Failure};
use super::options::Cli;
use super::output::print;

/// The exit codes, for the help and for the manual page.
const CODES: [(&str, &str); 9] = [
    ("command's", "the command ran and ended; if the signal n ended it, 128 + n"),
    ("1", "the lease was not granted at once (-n) or in time (-w); -E chooses another code"),
    ("64", "the command line or the URL of the store is invalid, or this program was built without that store"),
    ("69", "the store could not be opened, or failed"),
    (
        "71",
        "the system refused to start a process, to handle signals or to open enough files, or the output could not be written",
    ),
    ("75", "the lease was lost while the command ran, with --on-loss kill"),
    ("126", "the command cannot be executed"),
    ("127", "the command was not found"),
    ("128 + n", "the signal n ended the wait for the store or the lease; after INT leasehold ends by INT itself"),
];

const VARIABLES: [(&str, &str); 4] = [
    ("LEASEHOLD_STORE", "the store, unless --store names one; the command gets it, too"),
    ("XDG_STATE_HOME", "the folder of leasehold/leases.db, the default store; ~/.local/state if unset"),
    ("LEASEHOLD_KEY", "for the command: the key"),
    ("LEASEHOLD_TOKEN", "for the command: the fencing token, a number"),
];

const EXAMPLES: [(&str, &str); 6] = [
    (
        "leasehold run backup -- tar -czf home.tar.gz /home",
        "waits until no other process holds the key backup, then runs tar",
    ),
    ("leasehold run -n backup -- ./backup.sh", "skips the work, with the exit code 1, if another process does it"),
    (
        "leasehold run -w 10 -E 0 backup -- sh -c 'cd /srv && ./backup.sh'",
        "waits for 10 s at most, and then exits with 0",
    ),
    ("leasehold elect mailer -- ./mailer", "keeps one of several candidates at work"),
    ("leasehold status backup", "shows who holds the key, and who waits for it"),
    ("leasehold run --store postgres://app@db.example/app deploy -- ./deploy.sh", "takes turns with other machines"),
];

const FILES: [(&str, &str); 2] = [
    ("~/.local/state/leasehold/leases.db", "the default store, an SQLite database"),
    ("FILE-leasehold.d", "beside each store FILE in SQLite: the sockets and signs of life of its holders and waiters"),
];

/// What stands below the long help.
pub(crate) fn after_help() -> String {
    let rows = |rows: &[(&str, &str)]| -> String {
        rows.iter().map(|(name, meaning)| format!("  {name:<15}  {meaning}\n")).collect()
    };
    format!("Exit codes:\n{}\nEnvironment:\n{}", rows(&CODES), rows(&VARIABLES).trim_end())
}

/// One page, with a section for each command.
pub(crate) fn man() -> Result<Exit, Failure> {
    let mut program = Cli::command();
    program.build();
    let mut page = Vec::new();
    let written = write(&program, &mut page);
    written.map_err(|why| Failure::system(format!("the manual page cannot be written: {why}")))?;
    print(&String::from_utf8_lossy(&page))
}

fn write(program: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let man = clap_mangen::Man::new(program.clone());
    man.render_title(page)?;
    man.render_name_section(page)?;
    let commands = || program.get_subcommands().filter(|command| command.get_name() != "help");
    page.extend(b".SH SYNOPSIS\n");
    for command in commands() {
        page.extend(escaped(&usage(command)).bytes().chain(*b"\n.br\n"));
    }
    for command in commands() {
        page.extend(format!(".SH \"LEASEHOLD {}\"\n", command.get_name().to_uppercase()).bytes());
        let mut section = Vec::new();
        let man = clap_mangen::Man::new(command.clone());
        man.render_description_section(&mut section)?;
        man.render_options_section(&mut section)?;
        // They are sections of a page of their own otherwise.
        let section = String::from_utf8_lossy(&section).replace("\n.SH ", "\n.SS ");
        // The two are one list of words to clap.
        let section = section.replace("<\\fIKEY COMMAND\\fR>", "\\fIKEY\\fR [\\-\\-] \\fICOMMAND\\fR...");
        page.extend(section.strip_prefix(".SH ").map_or_else(|| section.clone(), |rest| format!(".SS {rest}")).bytes());
    }
    for (title, rows) in
        [("EXIT STATUS", &CODES[..]), ("ENVIRONMENT", &VARIABLES), ("FILES", &FILES), ("EXAMPLES", &EXAMPLES)]
    {
        page.extend(format!(".SH \"{title}\"\n").bytes());
        for (name, meaning) in rows {
            page.extend(format!(".TP\n{}\n{}\n", escaped(name), escaped(meaning)).bytes());
        }
    }
    page.extend(b".SH \"SEE ALSO\"\n\\fBflock\\fR(1)\n");
    Ok(())
}

fn usage(command: &clap::Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").trim().to_owned()
}

/// Text that roff leaves as it is.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
