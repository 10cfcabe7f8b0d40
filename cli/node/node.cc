#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "cli/common.h"
#include "cli/node/commands.h"
#include "cli/node/used_accounts.h"
#include "gateway/base/clock.h"
#include "gateway/base/node_serial.h"
#include "gateway/nodes/node_logs.h"
#include "gateway/nodes/node_orders.h"
#include "gateway/nodes/node_registry.h"
#include "gateway/nodes/node_tpms.h"
#include "gateway/server/gateway.h"
#include "gateway/tls/authority_files.h"
#include "wire/tls/fingerprint.h"

namespace outboard::cli {

namespace {

using gateway::NodeRegistry;
using gateway::NodeRow;

absl::StatusOr<std::unique_ptr<NodeRegistry>> OpenRegistry(const NodeFlags& flags) {
  OB_ASSIGN_OR_RETURN(const std::string path, UsedAccountsFile(flags.data));
  return NodeRegistry::Open(path);
}

absl::Status Claim(const NodeFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto registry, OpenRegistry(flags));
  if (flags.boot) {
    OB_RETURN_IF_ERROR(registry->OfferClaim(flags.serial, gateway::WallNow()));
    std::fprintf(stderr,
                 "outboard: the next machine that asks `outboard boot` as %s, within 15 minutes, "
                 "gets a claim\n",
                 flags.serial.c_str());
    return absl::OkStatus();
  }
  OB_ASSIGN_OR_RETURN(const gateway::Secret claim,
                      registry->MakeClaim(flags.serial, gateway::WallNow()));
  // Alone on stdout, for a script.
  std::printf("%s\n", std::string(claim.Reveal()).c_str());
  std::fprintf(stderr,
               "outboard: for one boot of %s: outboard.claim= on its kernel's command line, within "
               "15 minutes; it is shown this once\n",
               flags.serial.c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<gateway::NodeTpms>> OpenTpms(const NodeFlags& flags) {
  OB_ASSIGN_OR_RETURN(const std::string path, UsedAccountsFile(flags.data));
  return gateway::NodeTpms::Open(path);
}

absl::Status Expect(const NodeFlags& flags) {
  if (flags.endorsement_key.empty()) {
    if (flags.serial.empty())
      return absl::InvalidArgumentError("which machine: --serial, --ek, or both");
    OB_ASSIGN_OR_RETURN(const auto registry, OpenRegistry(flags));
    return registry->Expect(flags.serial, gateway::WallNow());
  }
  // Of 64 digits alone, too, as sha256sum prints them.
  const bool is_bare = flags.endorsement_key.find("sha256:") == std::string::npos;
  const auto key =
      tls::Fingerprint::Parse("--ek", (is_bare ? "sha256:" : "") + flags.endorsement_key);
  if (!key.ok())  // its words are of a gateway's fingerprint
    return absl::InvalidArgumentError(
        absl::StrCat("--ek is \"", absl::CHexEscape(flags.endorsement_key.substr(0, 100)),
                     "\": write sha256: and 64 hex digits, as `outboard node show` prints it"));
  OB_ASSIGN_OR_RETURN(const auto tpms, OpenTpms(flags));
  return tpms->Bind(key->ToString(), flags.serial, gateway::WallNow());
}

// Nodes, with those that are expected by their TPM and have not come yet.
absl::StatusOr<std::vector<NodeRow>> AllNodes(const NodeFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto registry, OpenRegistry(flags));
  OB_ASSIGN_OR_RETURN(std::vector<NodeRow> all, registry->List());
  OB_ASSIGN_OR_RETURN(const auto tpms, OpenTpms(flags));
  OB_ASSIGN_OR_RETURN(const auto rows, tpms->List());
  for (const gateway::NodeTpmRow& row : rows) {
    const bool has_come =
        std::any_of(all.begin(), all.end(), [&](const NodeRow& node) {
          return node.serial == row.serial && node.state == gateway::NodeState::kEnrolled;
        });
    if (has_come) continue;
    NodeRow node{.serial = row.serial, .state = gateway::NodeState::kExpected, .since = row.since};
    node.facts.set_endorsement_key(row.endorsement_key);
    all.push_back(std::move(node));
  }
  return all;
}

absl::Status Approve(const NodeFlags& flags) {
  OB_ASSIGN_OR_RETURN(const auto registry, OpenRegistry(flags));
  OB_RETURN_IF_ERROR(registry->Approve(flags.serial, flags.key, gateway::WallNow()));
  std::fprintf(stderr, "outboard: %s is let in when it asks again, within a minute or so\n",
               flags.serial.c_str());
  return absl::OkStatus();
}

// Until when a node's certificate is good; the past where it has none.
absl::Time CertificateEnd(const NodeRow& node,
                          const std::vector<gateway::IssuedCertificate>& issued,
                          const std::vector<std::string>& revoked) {
  absl::Time end = absl::InfinitePast();
  for (const auto& one : issued)
    if (one.key_id == node.key_id && gateway::NodeOfSubject(one.name) == node.serial &&
        std::find(revoked.begin(), revoked.end(), one.serial) == revoked.end())
      end = std::max(end, one.not_after);
  return end;
}

std::string Time(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
}

// In JSON; null: there was none.
std::string JsonOf(const gateway::JoinTest* test) {
  if (test == nullptr) return "null";
  return absl::StrCat("{\"passed\": ", test->passed ? "true" : "false", ", \"why\": ",
                      Quoted(test->why), ", \"image\": ", Quoted(test->image),
                      ", \"at\": ", Quoted(ToString(test->at)), "}");
}

void PrintAsJson(const NodeRow& node, const std::string& state, absl::Time end,
                 const gateway::JoinTest* test) {
  const auto list = [](const auto& texts) {
    std::vector<std::string> quoted;
    for (const std::string& text : texts) quoted.push_back(Quoted(text));
    return absl::StrJoin(quoted, ", ");
  };
  std::printf(
      "{\"serial\": %s, \"state\": %s, \"since\": %s, \"certificate_until\": %s, \"key\": %s, "
      "\"address\": %s, \"uuid\": %s, \"mac\": [%s], \"cores\": %u, \"memory_bytes\": %llu, "
      "\"devices\": [%s], \"image\": %s, \"kernel\": %s, \"tpm\": %s, \"join_test\": %s}\n",
      Quoted(node.serial).c_str(), Quoted(state).c_str(), Quoted(ToString(node.since)).c_str(),
      end == absl::InfinitePast() ? "null" : Quoted(Time(end)).c_str(), Quoted(node.key_id).c_str(),
      Quoted(node.address).c_str(), Quoted(node.facts.uuid()).c_str(),
      list(node.facts.mac()).c_str(), node.facts.cores(),
      static_cast<unsigned long long>(node.facts.memory_bytes()),
      list(node.facts.devices()).c_str(), Quoted(node.facts.image()).c_str(),
      Quoted(node.facts.kernel()).c_str(),
      node.facts.endorsement_key().empty() ? "null" : Quoted(node.facts.endorsement_key()).c_str(),
      JsonOf(test).c_str());
}

void Print(const NodeRow& node, const std::string& state, absl::Time end,
           const gateway::JoinTest* test) {
  std::printf("%s  %s since %s\n", node.serial.empty() ? "(any)" : node.serial.c_str(),
              state.c_str(), ToString(node.since).c_str());
  if (end != absl::InfinitePast()) std::printf("  certificate  until %s\n", Time(end).c_str());
  if (!node.key_id.empty()) std::printf("  key          %s\n", node.key_id.c_str());
  if (!node.facts.endorsement_key().empty())
    std::printf("  TPM          %s\n", node.facts.endorsement_key().c_str());
  if (test != nullptr)
    std::printf("  join test    %s at %s%s%s\n",
                test->passed ? "passed" : "failed", ToString(test->at).c_str(),
                test->why.empty() ? "" : ": ", test->why.c_str());
  if (!node.address.empty()) std::printf("  asked from   %s\n", node.address.c_str());
  if (node.facts.serial().empty()) return;
  std::printf("  machine      %u cores, %llu MiB, uuid %s, mac %s\n", node.facts.cores(),
              static_cast<unsigned long long>(node.facts.memory_bytes() >> 20),
              node.facts.uuid().c_str(), absl::StrJoin(node.facts.mac(), " ").c_str());
  if (node.facts.devices_size() > 0)
    std::printf("  devices      %s\n", absl::StrJoin(node.facts.devices(), " ").c_str());
  std::printf("  image        %s, kernel %s\n",
              node.facts.image().empty() ? "not said" : node.facts.image().c_str(),
              node.facts.kernel().c_str());
}

// All of them, or the one that is named.
absl::Status List(const NodeFlags& flags) {
  OB_ASSIGN_OR_RETURN(std::vector<NodeRow> all, AllNodes(flags));
  if (!flags.serial.empty()) {
    std::erase_if(all, [&](const NodeRow& node) { return node.serial != flags.serial; });
    if (all.empty())
      return absl::NotFoundError(absl::StrCat("no machine ", flags.serial,
                                              "; `outboard node ls` lists those that are known"));
  }
  OB_ASSIGN_OR_RETURN(const auto orders,
                      gateway::NodeOrders::Open(gateway::AccountsPath(DataFolderOr(flags.data))));
  OB_ASSIGN_OR_RETURN(const auto tests, orders->Tests());
  OB_ASSIGN_OR_RETURN(const auto issued, gateway::ReadIssued(DataFolderOr(flags.data)));
  OB_ASSIGN_OR_RETURN(const auto revoked, gateway::ReadRevoked(DataFolderOr(flags.data)));
  for (const NodeRow& node : all) {
    const absl::Time end = CertificateEnd(node, issued, revoked);
    std::string state = ToString(node.state);
    if (node.state == gateway::NodeState::kWaiting) state = "waiting for approval";
    if (node.state == gateway::NodeState::kEnrolled && end <= absl::Now())
      state = "without a certificate";
    const auto test = tests.find(node.serial);
    const gateway::JoinTest* const tested = test == tests.end() ? nullptr : &test->second;
    flags.json ? PrintAsJson(node, state, end, tested) : Print(node, state, end, tested);
  }
  if (all.empty() && !flags.json)
    std::fprintf(stderr, "outboard: no machine is expected, waits or has enrolled\n");
  return absl::OkStatus();
}

absl::Status Remove(const NodeFlags& flags) {
  // First what lets it in: it does not come back in between. A key that some node has is that node.
  OB_ASSIGN_OR_RETURN(const auto tpms, OpenTpms(flags));
  OB_ASSIGN_OR_RETURN(const auto of_key, tpms->Find(flags.serial));
  const std::string serial =
      of_key.has_value() && !of_key->serial.empty() ? of_key->serial : flags.serial;
  const absl::Status tpm_removed = tpms->Remove(serial);
  if (!tpm_removed.ok() && !absl::IsNotFound(tpm_removed)) return tpm_removed;
  OB_ASSIGN_OR_RETURN(const auto registry, OpenRegistry(flags));
  absl::Status removed = registry->Remove(serial);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  if (tpm_removed.ok()) removed = tpm_removed;
  OB_ASSIGN_OR_RETURN(const auto orders,
                      gateway::NodeOrders::Open(gateway::AccountsPath(DataFolderOr(flags.data))));
  OB_RETURN_IF_ERROR(orders->Forget(serial));
  OB_ASSIGN_OR_RETURN(const auto issued, gateway::ReadIssued(DataFolderOr(flags.data)));
  int count = 0;
  for (const auto& one : issued) {
    if (gateway::NodeOfSubject(one.name) != serial) continue;
    OB_RETURN_IF_ERROR(gateway::Revoke(DataFolderOr(flags.data), one.serial));
    ++count;
  }
  if (count == 0) return removed;
  std::fprintf(stderr, "outboard: %d certificates revoked; its connections end within seconds\n",
               count);
  return absl::OkStatus();
}

absl::Status Logs(const NodeFlags& flags) {
  const gateway::NodeLogs logs(DataFolderOr(flags.data));
  OB_ASSIGN_OR_RETURN(const std::string text, logs.Read(flags.serial));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

}  // namespace

int RunNodeClaim(const NodeFlags& flags) { return Report(Claim(flags)); }
int RunNodeExpect(const NodeFlags& flags) { return Report(Expect(flags)); }
int RunNodeApprove(const NodeFlags& flags) { return Report(Approve(flags)); }
int RunNodeList(const NodeFlags& flags) { return Report(List(flags)); }
int RunNodeShow(const NodeFlags& flags) { return Report(List(flags)); }
int RunNodeRemove(const NodeFlags& flags) { return Report(Remove(flags)); }
int RunNodeLogs(const NodeFlags& flags) { return Report(Logs(flags)); }

}  // namespace outboard::cli
