#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/node/used_accounts.h"
#include "gateway/accounts/worker_quarantine.h"

namespace outboard::cli {

namespace {

struct QuarantineFlags {
  std::string data;
  std::string worker;  // lift: an identity, name or serial number, as ls prints them
  bool json = false;
};

using gateway::QuarantineRows;
using gateway::SetAsideWorker;

absl::StatusOr<std::unique_ptr<QuarantineRows>> OpenRows(const QuarantineFlags& flags) {
  OB_ASSIGN_OR_RETURN(const std::string path, UsedAccountsFile(flags.data));
  return QuarantineRows::Open(path);
}

absl::Status List(const QuarantineFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto rows, OpenRows(flags));
  OB_ASSIGN_OR_RETURN(const std::vector<SetAsideWorker> all, rows->Read());
  for (const SetAsideWorker& worker : all) {
    if (flags.json)
      std::printf("{\"identity\": %s, \"name\": %s, \"since\": %s, \"why\": %s}\n",
                  Quoted(worker.identity).c_str(), Quoted(worker.name).c_str(),
                  Quoted(gateway::ToString(worker.since)).c_str(), Quoted(worker.why).c_str());
    else
      std::printf("%s  %s\n  since %s: %s\n", worker.identity.c_str(), worker.name.c_str(),
                  gateway::ToString(worker.since).c_str(), worker.why.c_str());
  }
  if (all.empty() && !flags.json)
    std::fprintf(stderr, "outboard: no worker or machine is set aside\n");
  return absl::OkStatus();
}

absl::Status Lift(const QuarantineFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto rows, OpenRows(flags));
  OB_ASSIGN_OR_RETURN(const std::vector<SetAsideWorker> lifted, rows->Lift(flags.worker));
  for (const SetAsideWorker& worker : lifted)
    std::printf("lifted %s of %s\n", worker.identity.c_str(), worker.name.c_str());
  if (!lifted.empty()) return absl::OkStatus();
  return absl::NotFoundError(
      "no worker or machine of that identity, name or serial number is set aside; `outboard "
      "quarantine ls` lists them");
}

int RunQuarantineList(const QuarantineFlags& flags) { return Report(List(flags)); }
int RunQuarantineLift(const QuarantineFlags& flags) { return Report(Lift(flags)); }

}  // namespace

void AddQuarantineCommands(Arguments& app) {
  const auto flags = std::make_shared<QuarantineFlags>();
  QuarantineFlags& quarantined = *flags;
  Command quarantine = app.Subcommand(
      "quarantine", "Manage the workers and machines that a gateway has set aside (docs/fleet.md)");
  quarantine.RequireSubcommand();
  Command quarantine_list =
      quarantine.ListSubcommand("List workers and machines: identity, name, since when, and why");
  quarantine_list.Add("--json", &quarantined.json, "Print JSON");
  Command quarantine_lift =
      quarantine.Subcommand("lift", "Give a worker or a machine sessions again, within seconds");
  quarantine_lift
      .Add("worker", &quarantined.worker, "Its identity, name or serial number, as ls prints it")
      .Required();
  for (Command command : {quarantine_list, quarantine_lift})
    command.Add("--data", &quarantined.data, kDataHelp);
  quarantine_list.Runs(flags, RunQuarantineList);
  quarantine_lift.Runs(flags, RunQuarantineLift);
}

}  // namespace outboard::cli
