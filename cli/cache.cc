#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::cli {
namespace {

struct CacheFlags {
  std::string store;   // the tuning store; empty: where workers store it
  std::string kernel;  // the first digits of an id
  std::string file;    // of export and import; empty: stdout, stdin
  bool all = false;
};

using search::Trial;
using worker::Tuning;
using worker::TuningFile;

constexpr size_t kIdDigits = 12;  // of 64: enough to distinguish kernels

std::string IdOf(const Tuning& tuning) { return absl::BytesToHexString(tuning.key.kernel); }

std::string TimeOf(const Trial* trial) {
  if (trial == nullptr || trial->time_ns == 0) return "-";
  return absl::StrFormat("%s%.1f us", trial->exact ? "" : "> ",
                         static_cast<double>(trial->time_ns) / 1e3);
}

absl::StatusOr<std::unique_ptr<TuningFile>> Open(const CacheFlags& flags, bool create) {
  const std::string path = flags.store.empty() ? worker::KernelStorePath() : flags.store;
  if (path.empty())
    return absl::InvalidArgumentError(
        "OUTBOARD_KERNEL_STORE is empty, so there is no tuning store");
  if (!create && !std::filesystem::exists(path))
    return absl::NotFoundError(absl::StrCat("nothing was measured yet: there is no ", path));
  return TuningFile::Open(path);
}

// "1980 MHz 402 W 58 C", and whether these clocks were throttled; empty where nothing is known.
std::string ConditionsOf(const Trial& trial, int fastest_mhz) {
  if (fastest_mhz == 0) return "";
  if (trial.at.clock_mhz == 0) return absl::StrFormat("%34s", "");
  return absl::StrFormat("%5d MHz %4d W %3d C %9s  ", trial.at.clock_mhz,
                         trial.at.power_mw / 1000, trial.at.celsius,
                         search::IsThrottled(trial.at, fastest_mhz) ? "throttled" : "");
}

absl::Status List(const CacheFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto store, Open(flags, /*create=*/false));
  OB_ASSIGN_OR_RETURN(const std::vector<Tuning> tunings, store->List());
  std::printf("%-12s  %6s  %5s  %12s  %12s  %7s  %s\n", "kernel", "trials", "width", "baseline",
              "best", "speedup", "name");
  for (const Tuning& tuning : tunings) {
    const Trial *const best = tuning.best(), *const first = &tuning.trials.front();
    std::string speedup = "-";
    if (best != nullptr && first->time_ns > 0)
      speedup = absl::StrFormat(
          "%.2f", static_cast<double>(first->time_ns) / static_cast<double>(best->time_ns));
    std::printf("%-12s  %6zu  %5d  %12s  %12s  %7s  %s\n",
                IdOf(tuning).substr(0, kIdDigits).c_str(), tuning.trials.size(), tuning.width,
                TimeOf(first).c_str(), TimeOf(best).c_str(), speedup.c_str(),
                Printable(tuning.name).c_str());
  }
  return absl::OkStatus();
}

absl::Status NoSuchKernel(const CacheFlags& flags) {
  return absl::NotFoundError(absl::StrCat("no kernel whose id begins with ", flags.kernel,
                                          "; `outboard cache ls` lists them"));
}

absl::Status Explain(const CacheFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto store, Open(flags, /*create=*/false));
  OB_ASSIGN_OR_RETURN(const std::vector<Tuning> tunings, store->List());
  bool found = false;
  for (const Tuning& tuning : tunings) {
    if (!absl::StartsWith(IdOf(tuning), absl::AsciiStrToLower(flags.kernel))) continue;
    found = true;
    std::printf("%s  %s\nsearch space %d, %s\n", IdOf(tuning).c_str(),
                Printable(tuning.name).c_str(),
                tuning.key.search_version, tuning.key.hardware.c_str());
    if (tuning.width > 0) std::printf("a search of width %d is finished\n", tuning.width);
    std::vector<const Trial*> trials;
    for (const Trial& trial : tuning.trials) trials.push_back(&trial);
    // Entries without a time come last, in the order in which they were tried.
    std::stable_sort(trials.begin(), trials.end(), [](const Trial* a, const Trial* b) {
      if ((a->time_ns == 0) != (b->time_ns == 0)) return b->time_ns == 0;
      return a->time_ns < b->time_ns;
    });
    int fastest_mhz = 0;
    for (const Trial* trial : trials) fastest_mhz = std::max(fastest_mhz, trial->at.clock_mhz);
    for (const Trial* trial : trials)
      std::printf("%12s  %s%s%s%s\n", TimeOf(trial).c_str(),
                  ConditionsOf(*trial, fastest_mhz).c_str(),
                  trial->opts.empty() ? "(no Opts)" : codegen::OptsToString(trial->opts).c_str(),
                  trial == &tuning.trials.front() ? "  <- the heuristic's" : "",
                  trial->time_ns == 0 ? "  does not compile, or runs wrong" : "");
  }
  if (!found)
    return NoSuchKernel(flags);
  return absl::OkStatus();
}

absl::Status Export(const CacheFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto store, Open(flags, /*create=*/false));
  OB_ASSIGN_OR_RETURN(const std::vector<Tuning> tunings, store->List());
  std::ofstream file;
  if (!flags.file.empty()) file.open(flags.file);
  std::ostream& out = flags.file.empty() ? std::cout : file;
  for (const Tuning& tuning : tunings) {
    OB_ASSIGN_OR_RETURN(const std::string line, worker::TuningToLine(tuning));
    out << line << "\n";
  }
  out.flush();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", flags.file));
  std::fprintf(stderr, "outboard: %s exported\n",
               Plural(static_cast<int64_t>(tunings.size()), "kernel").c_str());
  return absl::OkStatus();
}

absl::Status Import(const CacheFlags& flags) {
  std::ifstream file(flags.file);
  if (!flags.file.empty() && !file)
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", flags.file));
  std::istream& in = flags.file.empty() ? std::cin : file;
  OB_ASSIGN_OR_RETURN(const auto store, Open(flags, /*create=*/true));
  int kernels = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    const absl::StatusOr<Tuning> tuning = worker::TuningFromLine(line);
    if (!tuning.ok())
      return absl::Status(
          tuning.status().code(),
          absl::StrCat("kernel ", kernels + 1, ": ", std::string(tuning.status().message())));
    for (const Trial& trial : tuning->trials)
      OB_RETURN_IF_ERROR(store->Add(tuning->key, tuning->name, trial));
    OB_RETURN_IF_ERROR(store->Finish(tuning->key, tuning->width));
    ++kernels;
  }
  std::fprintf(stderr, "outboard: %s imported\n", Plural(kernels, "kernel").c_str());
  return absl::OkStatus();
}

absl::Status Remove(const CacheFlags& flags) {
  if (flags.kernel.empty() != flags.all)
    return absl::InvalidArgumentError("name a kernel by its id, or say --all");
  OB_ASSIGN_OR_RETURN(const auto store, Open(flags, /*create=*/false));
  OB_ASSIGN_OR_RETURN(const int64_t removed, store->Remove(flags.kernel));
  if (removed == 0 && !flags.all)
    return NoSuchKernel(flags);
  std::fprintf(stderr, "outboard: %s removed\n", Plural(removed, "kernel").c_str());
  return absl::OkStatus();
}

int RunCacheList(const CacheFlags& flags) { return Report(List(flags)); }
int RunCacheExplain(const CacheFlags& flags) { return Report(Explain(flags)); }
int RunCacheExport(const CacheFlags& flags) { return Report(Export(flags)); }
int RunCacheImport(const CacheFlags& flags) { return Report(Import(flags)); }
int RunCacheRemove(const CacheFlags& flags) { return Report(Remove(flags)); }

}  // namespace

void AddTuningCommands(Arguments& app) {
  const auto flags = std::make_shared<CacheFlags>();
  CacheFlags& tuned = *flags;
  Command cache = app.Subcommand("cache", "Manage the kernel timings measured on this machine");
  cache.RequireSubcommand();
  Command cache_list = cache.ListSubcommand("List kernels with their baseline and best time");
  Command explain = cache.Subcommand("explain", "Show every measured variant of a kernel");
  explain.Add("kernel", &tuned.kernel, "First digits of the kernel's id, as `cache ls` prints it")
      .Required();
  Command cache_export = cache.Subcommand("export", "Export all results, one line per kernel");
  cache_export.Add("file", &tuned.file, "File to write (default: standard output)");
  Command cache_import = cache.Subcommand("import", "Import another machine's export");
  cache_import.Add("file", &tuned.file, "File to read (default: standard input)");
  Command forget =
      cache.Subcommand("rm", "Remove a kernel's results, so that it is searched again");
  forget.Add("kernel", &tuned.kernel, "First digits of the kernel's id, as `cache ls` prints it");
  forget.Add("--all", &tuned.all, "Remove all results");
  for (Command command : {cache_list, explain, cache_export, cache_import, forget})
    command.Add("--store", &tuned.store,
                "Tuning store (default: $OUTBOARD_KERNEL_STORE, else "
                "kernels.db in ~/.cache/outboard)");
  cache_list.Runs(flags, RunCacheList);
  explain.Runs(flags, RunCacheExplain);
  cache_export.Runs(flags, RunCacheExport);
  cache_import.Runs(flags, RunCacheImport);
  forget.Runs(flags, RunCacheRemove);
}

}  // namespace outboard::cli
