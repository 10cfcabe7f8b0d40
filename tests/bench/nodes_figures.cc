#include "tests/bench/nodes_figures.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "telemetry/log.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/gateway/simulated_nodes.h"
#include "tests/nodes/enrol_storm.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

constexpr int kMachines = 1000;
constexpr int kSecondsMax = 3600;

class Folder {
 public:
  // In memory where it can be: virtual time knows no disk.
  Folder() {
    std::string pattern =
        (std::filesystem::is_directory("/dev/shm") ? std::filesystem::path("/dev/shm")
                                                   : std::filesystem::temp_directory_path()) /
        "nodes-XXXXXX";
    OB_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What tests/nodes/figures prints: "FIGURE NUMBER", or "FIGURE skipped WHY".
void ScriptFigures() {
  const std::vector<std::array<const char*, 3>> figures = {
      {"image_mib", "MiB", "kernel and initramfs; at most 64 are wanted"},
      {"image_build_s", "s", "with its packages fetched already; at most 180 are wanted"},
      {"image_reproducible", "", "1: two builds are the same bytes"},
      {"boot_to_serving_s", "s",
       "path B in QEMU without KVM, power on until the client's first step; at most 20 are wanted"},
      {"node_ram_overhead_mib", "MiB", "the machine's memory less MemAvailable, idle; at most 256"},
      {"revoked_s", "s", "`outboard node rm` until the worker is gone; at most 5"},
      {"update_node_s", "s",
       "`outboard node reboot` until a step runs under another image, in QEMU; at most 40"},
      {"boot_4_nodes_s", "s", "four in QEMU at once, until each has run a step; at most 90"},
      {"boot_to_serving_s_signed", "s", "path A under Secure Boot; at most 40"},
      {"slurm_worker_joined_s", "s", "from the start of the job; at most 10"},
      {"nodes_hostile_failed", "count",
       "of cases 131 to 140, and of altered images, scripts and drivers"}};
  std::map<std::string, std::string> said;
  std::istringstream lines(OutputOf(absl::StrCat("\"", test::kBenchFolder,
                                                 "/../nodes/figures\" \"", test::kBuildFolder,
                                                 "\"")));
  for (std::string name, rest; lines >> name && std::getline(lines >> std::ws, rest);)
    said[name] = rest;
  constexpr char kSkipped[] = "skipped ";
  for (const auto& [name, unit, note] : figures) {
    const std::string& what = said[name];
    if (what.empty()) {
      ReportSkipped(name, "tests/nodes/figures says nothing of it");
    } else if (what.starts_with(kSkipped)) {
      ReportSkipped(name, what.substr(sizeof kSkipped - 1));
    } else {
      Report(name, std::stod(what), unit, "", note);
    }
  }
}

// From the start of a rollout until every machine serves under its old image again: the longest of
// three broken images.
void RollbackFigure() {
  using namespace gateway;  // NOLINT: of this function alone
  const std::vector<std::pair<ImageKind, std::string>> kinds = {
      {ImageKind::kPanics, "does not boot"},
      {ImageKind::kDoesNotJoin, "does not join"},
      {ImageKind::kFailsTest, "fails its test"}};
  constexpr int kNodes = 20, kWithinS = 60;
  const std::string first = "sha256:first", second = "sha256:second";
  int longest = 0, lost = 0;
  std::string note = "virtual time, 20 simulated machines that take 11 s to start, --within 60:";
  for (const auto& [kind, words] : kinds) {
    const Folder folder;
    SimulatedNodes nodes(folder.path() + "/accounts.db", {1'764'000'000'000});
    for (const std::string& image : {first, second})
      OB_CHECK_OK(nodes.images().Add({.digest = image, .kernel = "6.1", .added = nodes.now()}));
    for (int i = 0; i < kNodes; ++i) nodes.PowerOn(absl::StrCat("s-", i), /*sessions=*/1);
    int seconds = 0;
    const auto all_serve_first = [&] {
      if (nodes.Here().size() != kNodes) return false;
      for (const std::string& serial : nodes.Here())
        if (nodes.ImageOf(serial) != first) return false;
      return true;
    };
    for (; !all_serve_first() && seconds < kSecondsMax; ++seconds) OB_CHECK_OK(nodes.Second());
    // Some machine has served it, or no rollout begins; on this shelf it does not.
    OB_CHECK_OK(nodes.images().NoteServed(second, nodes.now()));
    std::map<std::string, std::string> now;
    for (const std::string& serial : nodes.Here()) now[serial] = first;
    nodes.SetKind(second, kind);
    OB_CHECK_OK(nodes.images()
                    .Begin({.image = second,
                            .nodes = "*",
                            .share_percent = 25,
                            .within_ms = 1000 * kWithinS},
                           now, nodes.now())
                    .status());
    const auto is_over = [&] {
      const auto rollout = ValueOrDie(nodes.images().LastRollout());
      return rollout->state == RolloutState::kStopped && all_serve_first();
    };
    for (seconds = 0; !is_over() && seconds < kSecondsMax; ++seconds) OB_CHECK_OK(nodes.Second());
    OB_CHECK(seconds < kSecondsMax);
    longest = std::max(longest, seconds);
    lost += nodes.sessions_lost();
    absl::StrAppend(&note, " ", words, " ", seconds, " s,");
  }
  Report("rollback_s", longest, "s", "",
         absl::StrCat(note, " ", lost, " sessions lost; at most 120 and 0 are wanted"));
}

void StormFigure() {
  const auto run = [](bool behind_one_address) {
    const Folder folder;
    return ValueOrDie(test::RunEnrolStorm({.folder = folder.path(),
                                           .machines = kMachines,
                                           .behind_one_address = behind_one_address}));
  };
  const test::EnrolStormResult one = run(true), own = run(false);
  OB_CHECK(one.serving == kMachines && own.serving == kMachines);
  OB_CHECK(one.twice == 0 && own.twice == 0);
  Report("enrol_storm_s", own.virtual_s, "s", "",
         absl::StrFormat("virtual time, from power on: 1,000 machines of their own addresses, "
                         "and 20 that say a serial number of those; images are not transferred; "
                         "all serve, none twice; %d asks, simulated in %.1f s",
                         own.asks, own.real_s));
  Report("enrol_storm_s_one_address", one.virtual_s, "s", "",
         absl::StrFormat("all of them behind one address, which may ask 8 times a second; "
                         "%d asks, %d too often",
                         one.asks, one.too_often));
}

}  // namespace

void NodeFigures() {
  // Thousands of machines that enrol and are refused.
  telemetry::StartLogging({.level = telemetry::LogLevel::kOff});
  StormFigure();
  RollbackFigure();
  telemetry::StopLogging();
  ScriptFigures();
}

}  // namespace outboard::bench
