// `outboard`: the single program, with a subcommand for each role of a server, and for what users
// and operators do: keys, bills, sweeps, estimates.
#include <cstring>
#include <string>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/estimate/commands.h"
#include "cli/node/commands.h"
#include "cli/service_manager.h"
#include "cli/sweep/commands.h"
#include "wire/library_logs.h"
#include "wire/limits.h"
#include "worker/devices/measure_main.h"
#include "worker/executor/executor_main.h"
#include "worker/init/node_init.h"
#include "worker/tuning/search_main.h"

namespace {

using namespace outboard;
using namespace outboard::cli;

int Main(int argc, char** argv) {
  // Before the flag parser: executors are started for sessions, and their start-up time counts.
  if (argc > 1 && std::strcmp(argv[1], "executor") == 0) {
    return worker::ExecutorMain(worker::ExecutorOptionsFromEnvironment());
  }

  // The kernel's name for process 1.
  if (argc > 0 && std::strcmp(argv[0], "/init") == 0) return worker::NodeInitMain();

  if (argc > 1 && std::strcmp(argv[1], "search") == 0) {
    return worker::SearchMain(worker::SearchOptionsFromEnvironment());
  }

  if ((argc == 3 || argc == 4) && std::strcmp(argv[1], "measure-device") == 0)
    return worker::MeasureMain(argv[2], argc == 4 ? argv[3] : "");

  Arguments app("outboard",
                "A cloud for tensors: gateway, workers, keys and bills.\n"
                "Exit codes: 0 success, 1 failure, 2 wrong usage or server unreachable.",
                argc > 1 ? argv[1] : nullptr);
  app.SetVersion(std::string("outboard ") + kVersion + " (protocol " +
                 std::to_string(wire::kProtocolVersion) + ", graph schema " +
                 std::to_string(wire::kGraphSchemaVersion) + ")");
  app.RequireSubcommand();

  AddServerCommands(app);
  AddAccountCommands(app);
  AddSessionCommands(app);
  AddCertificateCommands(app);
  AddQuarantineCommands(app);
  AddStoreCommands(app);
  AddTuningCommands(app);
  AddMetricsCommands(app);
  AddTraceCommand(app);
  AddShardCommands(app);
  AddSweepCommands(app);
  AddEstimateCommand(app);
  AddNodeCommands(app);
  AddVizCommand(app);
  return app.Run(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  wire::SilenceLibraryLogs();
  cli::ForbidCoreDumps();
  cli::ServiceManager::OfProcess();
  return Main(argc, argv);
}
