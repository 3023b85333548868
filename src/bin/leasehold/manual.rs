//! The manual page and the completions, made of the same options.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::codes::{Failure, print};
use super::options::Cli;

pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// One page: the program, and a section for each of its commands.
pub(crate) fn man() -> Result<u8, Failure> {
    let mut program = Cli::command();
    program.build();
    let mut page = Vec::new();
    let written = write(&program, &mut page);
    written.map_err(|why| Failure::system(format!("the manual page cannot be written: {why}")))?;
    print(&String::from_utf8_lossy(&page))
}

fn write(program: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    clap_mangen::Man::new(program.clone()).render(page)?;
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let mut section = Vec::new();
        let man = clap_mangen::Man::new(command.clone());
        man.render_synopsis_section(&mut section)?;
        man.render_description_section(&mut section)?;
        man.render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace("\n.SH ", "\n.SS ");
        let section = section.strip_prefix(".SH ").map_or_else(|| section.to_string(), |rest| format!(".SS {rest}"));
        page.extend(format!(".SH \"LEASEHOLD {}\"\n", command.get_name().to_uppercase()).bytes());
        page.extend(section.bytes());
    }
    Ok(())
}
