//! `perfx inject` adds what perf inject adds, in any recording, with the same options.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use perfx_filter::{Filter, FilterOptions, WindowArgs};
use perfx_format::read::Form;
use perfx_passes::{
    Aslr, BuildIds, BuildIdsOptions, ConvertCallchain, IdArgs, IdOptions, Itrace, Jit, JitLayout, JitOptions,
    Kept, MergeOptions, Mmap2BuildIds, Mmap2BuildIdsOptions, StacksNeeded, Strip, sched_stat,
};
use perfx_pipeline::{Level, Pass, Report};

use super::merge::{guest_pass, has_kcore};
use crate::args::{Usage, usage};
use crate::io::output::{MoreArgs, WriteArgs};
use crate::io::source::Source;

/// Options that only perf inject has, and why.
pub(crate) const PERF_ONLY: [(&str, &str); 1] = [(
    "--vm-time-correlation",
    "perf 5.13 to 6.11 do that; later versions crash, and perfx inject does not do it",
)];

/// Add build-ids and more to a recording, as perf inject does
///
/// Build-ids are looked up in this order: --known-build-ids, the recording, the file itself (if its
/// inode is still the recorded one), --root, --buildid-dir, and the running kernel (if it is the
/// recorded one).
///
/// Samples with user stacks or AUX data may hit more DSOs than their addresses show. -b then adds all
/// DSOs of their processes (AUX data: of the whole recording), and -B keeps all of their mappings.
///
/// With -j, images go into a folder beside the output. Do not move it: the recording contains its
/// path. Record with `perf record -k 1`; without it, code that was loaded over older code is an error.
///
/// --convert-callchain unwinds the user stacks of `perf record --call-graph dwarf`. It searches the
/// files that were mapped as -b does. Stacks and registers are left out of the output.
///
/// -s is for recordings of sched:sched_stat_*, sched:sched_switch and sched:sched_process_exit with -g.
/// perfx off-cpu needs sched:sched_switch alone.
///
/// --itrace decodes Arm SPE as perf 7.3 does: f first-level cache, m last-level cache, t TLB, b branches, a
/// remote accesses, M memory, i instructions (i100i: one record in 100), l branch stacks. Of Intel PT it
/// decodes i instructions (i1000i, i100us, i10t), y core cycles, b branches, c calls, r returns, x
/// transactions, w PTWRITE, p power and PSB, o PEBS, I interrupts, e errors; l64 adds last branches and g16
/// call chains to i, x, w and p, and L64 and G16 to recorded samples; s100 skips 100 samples; A, q and Z are
/// those of perf. CoreSight has i, b, c, r, e, l, g, Z and T. Code is found as -b finds files, and only if it
/// is the recorded one. With --time, only the trace of a window is decoded, starting at the sync point before
/// it. For other AUX data, the error shows the perf command that decodes it.
///
/// Without an option that says what to inject, the recording is copied unchanged, as perf inject
/// does. A link to perfx called perf-inject accepts the options of perf inject, also shortened or as
/// --no-OPTION, and keeps an existing output as FILE.old, as perf does.
///
/// Examples:
///   perfx inject --buildids perf.data -o injected.data
///   perf record -o - ./program | perfx inject -b | perf report -i -
///   perfx inject --jit perf.data -o injected.data
///   perfx inject -b --root /srv/container perf.data -o injected.data
///   perfx inject --buildid-all --in-place perf.data
///   perfx inject --buildids --in-place night/*.data
#[derive(Args, Debug, Clone)]
#[command(verbatim_doc_comment)]
pub(crate) struct Inject {
    /// Add the build-ids of DSOs that samples hit, by their address or in their call chains
    #[arg(short = 'b', long = "buildids", visible_alias = "build-ids")]
    build_ids: bool,
    /// Add the build-ids of all mapped DSOs
    #[arg(long)]
    buildid_all: bool,
    /// Put build-ids into MMAP2 records, and keep only the mappings that samples hit or may need
    #[arg(short = 'B', long)]
    mmap2_buildids: bool,
    /// Put build-ids into all MMAP2 records
    #[arg(long)]
    mmap2_buildid_all: bool,
    /// Name the code of JIT compilers: convert the jitdumps of processes to ELF images
    #[arg(short = 'j', long)]
    jit: bool,
    /// Write the images into this folder [default: the output's path with .jit]
    #[arg(long, value_name = "DIR", requires = "jit")]
    jit_output: Option<PathBuf>,
    /// Also look for jitdumps in this folder, by their name alone; repeatable
    #[arg(long, value_name = "DIR", requires = "jit")]
    jit_dir: Vec<PathBuf>,
    /// Which functions go into one image
    #[arg(long, value_name = "LAYOUT", default_value = "arena", requires = "jit")]
    jit_layout: JitLayout,
    /// Also put the images into perf's build-id cache: the first --buildid-dir, else ~/.debug
    #[arg(long, requires = "jit")]
    jit_cache: bool,
    /// Also name code by perf maps (perf-PID.map), for processes without a jitdump: Ruby, .NET
    #[arg(long, requires = "jit")]
    jit_map: bool,
    /// Convert the user stacks of samples into call chains, and leave out the stacks
    #[arg(long)]
    convert_callchain: bool,
    /// Leave out the user stacks of samples that can't be unwound, too
    #[arg(long, requires = "convert_callchain")]
    drop_unresolved: bool,
    /// Merge sched_stat_* samples with the sched_switch samples before them: where tasks slept, and how long
    #[arg(short = 's', long)]
    sched_stat: bool,
    /// Decode the AUX data of Arm SPE, Intel PT or CoreSight into samples; letters as for perf script --itrace [default:
    /// all events, as far as the trace has them]
    #[arg(long, value_name = "LETTERS", num_args = 0..=1, require_equals = true)]
    itrace: Option<Option<String>>,
    /// With --itrace of Intel PT, take the kernel's code from this file
    #[arg(short = 'k', long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    #[command(flatten)]
    window: WindowArgs,
    /// Leave out the recorded events, with --itrace or from its output, as perfx strip --recorded does
    #[arg(long)]
    strip: bool,
    /// True if --strip keeps the samples of a recording without a trace
    #[arg(skip)]
    keeps_undecoded: bool,
    /// Move all addresses, so that the layout of memory stays secret; samples with stacks or raw data are
    /// kept
    #[arg(long)]
    aslr: bool,
    /// Secret key that decides the new addresses; outputs with the same key can be compared [default: made
    /// from the old addresses]
    #[arg(long, alias = "seed", value_name = "TEXT", requires = "aslr")]
    key: Option<String>,
    #[command(flatten)]
    ids: IdArgs,
    /// Merge a guest's recording, as perfx merge does: PATH,PID[,OFFSET[,SCALE]]; repeatable
    #[arg(long, value_name = "GUEST")]
    guest_data: Vec<OsString>,
    /// Look for a guest's files below DIR/PID
    #[arg(long, value_name = "DIR")]
    guestmount: Option<PathBuf>,
    #[command(flatten)]
    idle: IdleArgs,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    more: MoreArgs,
}

const IDLE: &str = "Without effect, for scripts that run perf inject";

/// Options with which perf inject finds and reads symbols. perfx does not need symbols, so it ignores them.
#[derive(Args, Debug, Clone)]
struct IdleArgs {
    /// perfx reads a kernel image only with --vmlinux
    #[arg(help_heading = IDLE, long)]
    ignore_vmlinux: bool,
    /// perfx reads no symbols of the kernel
    #[arg(help_heading = IDLE, long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
    /// perfx does not use perf's unwinders
    #[arg(help_heading = IDLE, long, value_name = "STYLE")]
    unwind_style: Option<String>,
    /// perfx leaves the stacks that it can't unwind
    #[arg(hide = true, long, conflicts_with = "drop_unresolved")]
    keep_unresolved: bool,
}

impl IdleArgs {
    /// Reports each given option as having no effect; without a guest, --guestmount has none either.
    fn report(&self, guestmount: bool, vmlinux: bool, report: &mut Report) {
        let options = [
            ("--guestmount without --guest-data", guestmount),
            ("--vmlinux without --itrace", vmlinux),
            ("--ignore-vmlinux", self.ignore_vmlinux),
            ("--kallsyms", self.kallsyms.is_some()),
            ("--unwind-style", self.unwind_style.is_some()),
        ];
        for (option, _) in options.iter().filter(|(_, given)| *given) {
            report.say(Level::Info, format!("{option} has no effect"));
        }
    }
}

impl Inject {
    pub(crate) fn run(self) -> Result<u8> {
        self.write.each(&self.more, |write| Inject { write: write.clone(), ..self.clone() }.inject())
    }

    fn inject(mut self) -> Result<u8> {
        self.write.backup |=
            self.write.verbosity.like_perf && self.write.output.as_ref().is_some_and(|path| path.is_file());
        let mut report = Report::default();
        let without_guest = self.guestmount.is_some() && self.guest_data.is_empty();
        self.idle.report(without_guest, self.vmlinux.is_some() && self.itrace.is_none(), &mut report);
        let ids = self.ids.clone().options().map_err(usage)?;
        let source = self.write.source()?;
        // Unless the passes can run again, space is reserved for stacks that can't be unwound.
        let runs_again = self.convert_callchain && self.write.can_run_again("inject", &source)?;
        let kept = match () {
            () if self.drop_unresolved || self.write.verbosity.like_perf => {
                Kept::Nothing { must_resolve: false }
            }
            () if runs_again => Kept::Nothing { must_resolve: true },
            () => Kept::Unresolved,
        };
        let passes = self.passes(&ids, kept)?;
        let build_ids = self.build_ids || self.buildid_all;
        if passes.is_empty() {
            let modes = "--buildids, --buildid-all, --mmap2-buildids, --mmap2-buildid-all, --jit, --itrace, \
                         --convert-callchain, --sched-stat, --strip, --aslr or --guest-data";
            ensure!(
                !self.ids.is_given(),
                Usage(format!(
                    "nothing to inject: the options say where to find build-ids, but none of {modes} is \
                    given"
                ))
            );
            report.say(
                Level::Info,
                format!("nothing to inject: give {modes}; the recording is copied unchanged"),
            );
        }
        if self.write.in_place && passes.len() == usize::from(build_ids) {
            // Readers treat the feature like build-id records, which would require moving the data.
            let passes = if build_ids { vec![self.build_ids_pass(true, &ids)] } else { Vec::new() };
            if let Some(code) = self.write.rewrite_features_in_place(passes)? {
                self.write.verbosity.print(&report);
                return Ok(code);
            }
        }
        if source.is_missing_default() {
            bail!(
                "there is no input: type perfx inject -b FILE -o OUTPUT, or pipe perf record -o - into perfx inject"
            );
        }
        let recording = source.open()?;
        // perf strips neither pipe data nor compressed recordings.
        self.keeps_undecoded = recording.form == Form::Pipe || recording.is_compressed();
        let passes = self.passes(&ids, kept)?;
        self.write.verbosity.print(&report);
        let run = |mut recording, passes| {
            if self.itrace.is_some() && !FilterOptions::from(self.window.clone()).is_empty() {
                source.use_index(&mut recording);
            }
            let has_kcore = has_kcore(&self.guest_data);
            self.write.write_recording("inject", &source, recording, passes, has_kcore)
        };
        match run(recording, passes) {
            Err(error) if error.chain().any(|cause| cause.is::<StacksNeeded>()) => {
                run(source.open()?, self.passes(&ids, Kept::Unresolved)?)
            }
            done => done,
        }
    }

    fn passes(&self, ids: &IdOptions, kept: Kept) -> Result<Vec<Box<dyn Pass>>> {
        let mut passes: Vec<Box<dyn Pass>> = Vec::new();
        let window = FilterOptions::from(self.window.clone());
        if !window.is_empty() {
            let what =
                "--time selects the part that --itrace decodes; perfx filter --time cuts other recordings";
            ensure!(self.itrace.is_some(), Usage(what.to_owned()));
            passes.push(Box::new(Filter::new(window)));
        }
        // Decoding needs the code in the images.
        if self.jit && self.itrace.is_some() {
            passes.push(self.jit_pass(ids)?);
        }
        if let Some(options) = &self.itrace {
            passes.push(Box::new(
                Itrace::new(options.as_deref(), ids.clone().with_code(self.vmlinux.clone()))
                    .map_err(usage)?,
            ));
        }
        if self.strip {
            passes.push(Box::new(match self.itrace.is_some() {
                true if self.write.verbosity.like_perf => Strip::after_itrace().of_any(self.keeps_undecoded),
                true => Strip::after_itrace(),
                false => Strip::recorded(),
            }));
        }
        // Before build-ids are added: samples that it drops hit nothing.
        if self.sched_stat {
            passes.push(Box::new(sched_stat()));
        }
        if self.jit && self.itrace.is_none() {
            passes.push(self.jit_pass(ids)?);
        }
        // Build-ids are needed for the DSOs that these call chains hit.
        if self.convert_callchain {
            passes.push(Box::new(ConvertCallchain::new(kept, ids.clone())));
        }
        // Before unused mappings are dropped, because a build-id record may be inserted before one.
        if self.build_ids || self.buildid_all {
            passes.push(self.build_ids_pass(false, ids));
        }
        if self.mmap2_buildids || self.mmap2_buildid_all {
            let options = Mmap2BuildIdsOptions { hit: !self.mmap2_buildid_all, ids: ids.clone() };
            passes.push(Box::new(Mmap2BuildIds::new(options)));
        }
        if !self.guest_data.is_empty() {
            let guests = self.guest_data.clone();
            let options =
                MergeOptions { guests, guestmount: self.guestmount.clone(), ..MergeOptions::default() };
            passes.push(guest_pass(options)?);
        }
        // Last, because the other passes find files and code by addresses.
        if self.aslr {
            passes.push(Box::new(Aslr::new(self.key.clone())));
        }
        Ok(passes)
    }

    fn build_ids_pass(&self, feature_only: bool, ids: &IdOptions) -> Box<dyn Pass> {
        Box::new(BuildIds::new(BuildIdsOptions { all: self.buildid_all, feature_only, ids: ids.clone() }))
    }

    fn jit_pass(&self, ids: &IdOptions) -> Result<Box<dyn Pass>> {
        let (folders, roots) = (self.jit_dir.clone(), ids.roots().to_vec());
        let options = JitOptions::new(self.images(), self.jit_layout, folders, roots, ids.is_foreign())
            .map_err(usage)?;
        let cache = if self.jit_cache { Some(self.cache(ids)?) } else { None };
        Ok(Box::new(Jit::new(options.with_perf_maps(self.jit_map).with_cache(cache))))
    }

    fn cache(&self, ids: &IdOptions) -> Result<PathBuf> {
        if let Some(cache) = ids.caches().first() {
            return Ok(cache.clone());
        }
        match build_id::home() {
            Some(home) => Ok(home.join(".debug")),
            None => {
                bail!(Usage("--jit-cache: HOME is not set; name the cache with --buildid-dir".to_owned()))
            }
        }
    }

    fn images(&self) -> PathBuf {
        if let Some(folder) = &self.jit_output {
            return folder.clone();
        }
        let of_input = || match Source::of(&self.write.input) {
            Source::Path(path) => path,
            Source::Stdin => PathBuf::from("perf.data"),
        };
        let output = self.write.output.clone().filter(|path| path != Path::new("-"));
        let mut folder = output.unwrap_or_else(of_input).into_os_string();
        folder.push(".jit");
        folder.into()
    }
}
