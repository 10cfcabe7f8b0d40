// `outboard node drain`, `reboot` and `quarantine`: what the gateway tells a node within a second.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/common.h"
#include "cli/node/commands.h"
#include "cli/node/used_accounts.h"
#include "gateway/accounts/worker_quarantine.h"
#include "gateway/base/clock.h"
#include "gateway/nodes/node_orders.h"
#include "gateway/nodes/node_registry.h"
#include "gateway/nodes/power_hook.h"

namespace outboard::cli {

namespace {

using gateway::NodeOrder;

absl::Status CheckKnown(const std::string& path, const std::string& serial) {
  OB_ASSIGN_OR_RETURN(const auto registry, gateway::NodeRegistry::Open(path));
  return registry->Find(serial).status();
}

absl::Status Ask(const NodeFlags& flags, NodeOrder order) {
  OB_ASSIGN_OR_RETURN(const std::string path, UsedAccountsFile(flags.data));
  OB_RETURN_IF_ERROR(CheckKnown(path, flags.serial));
  OB_ASSIGN_OR_RETURN(const auto orders, gateway::NodeOrders::Open(path));
  OB_RETURN_IF_ERROR(orders->Ask({.serial = flags.serial,
                                  .order = order,
                                  .why = flags.why.empty() ? "an operator" : flags.why,
                                  .asked = gateway::WallNow()}));
  std::fprintf(stderr, "outboard: %s is told so if it joins, or has joined, within a minute\n",
               flags.serial.c_str());
  return absl::OkStatus();
}

absl::Status Reboot(const NodeFlags& flags) {
  if (flags.power_hook.empty()) return Ask(flags, NodeOrder::kRestart);
  OB_ASSIGN_OR_RETURN(const std::string path, UsedAccountsFile(flags.data));
  OB_RETURN_IF_ERROR(CheckKnown(path, flags.serial));
  return gateway::PowerCycle(flags.power_hook, flags.serial);
}

absl::Status Quarantine(const NodeFlags& flags) {
  if (!flags.lift) return Ask(flags, NodeOrder::kQuarantine);
  OB_ASSIGN_OR_RETURN(const std::string path, UsedAccountsFile(flags.data));
  OB_ASSIGN_OR_RETURN(const auto rows, gateway::QuarantineRows::Open(path));
  OB_ASSIGN_OR_RETURN(const auto lifted, rows->Lift(flags.serial));
  if (lifted.empty())
    return absl::NotFoundError(absl::StrCat(
        "the node ", flags.serial, " is not set aside; `outboard quarantine ls` lists those"));
  return absl::OkStatus();
}

}  // namespace

int RunNodeDrain(const NodeFlags& flags) { return Report(Ask(flags, NodeOrder::kDrain)); }
int RunNodeReboot(const NodeFlags& flags) { return Report(Reboot(flags)); }
int RunNodeQuarantine(const NodeFlags& flags) { return Report(Quarantine(flags)); }

}  // namespace outboard::cli
