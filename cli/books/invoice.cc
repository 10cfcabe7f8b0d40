// `outboard invoice` and `outboard audit`: bills that are checked, not believed.
#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "cli/books/account_named.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/connect.h"
#include "client/session/address.h"
#include "gateway/accounts/accounts.h"
#include "gateway/base/clock.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "gateway/proof/auditor.h"
#include "gateway/proof/head_signer.h"
#include "gateway/proof/invoice_check.h"
#include "gateway/proof/invoice_page.h"
#include "gateway/proof/receipt_rows.h"
#include "gateway/server/gateway.h"
#include "proto/account.grpc.pb.h"
#include "wire/proof/head_file.h"
#include "wire/status.h"

namespace outboard::cli {
namespace {

using gateway::MicroUsd;

constexpr std::chrono::seconds kAnswersWithin{30};  // a page, behind those of others

// INVALID_ARGUMENT: it has none; `hint` follows.
absl::StatusOr<std::string> BooksIn(const std::string& folder, const char* hint) {
  const std::string path = gateway::AccountsPath(folder);
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  return absl::InvalidArgumentError("no accounts in " + folder + "; " + hint);
}
constexpr char kNameTheGatewaysFolder[] = "name the gateway's folder with --data";

// One page after the other, behind an entry's number.
using Pages = std::function<absl::StatusOr<proto::InvoiceReply>(int64_t after)>;

absl::StatusOr<Pages> PagesOfGateway(const std::string& target) {
  const char* const variable = std::getenv("CLOUD_KEY");
  const std::string key = variable == nullptr ? "" : variable;
  OB_RETURN_IF_ERROR(session::CheckTarget("--gateway", target));
  OB_RETURN_IF_ERROR(session::CheckKeyText("CLOUD_KEY", key));
  OB_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, ConnectWithEnvironment(target));
  return [key, stub = std::shared_ptr(proto::Account::NewStub(channel))](
             int64_t after) -> absl::StatusOr<proto::InvoiceReply> {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswersWithin);
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    proto::InvoiceRequest request;
    request.set_after(after);
    proto::InvoiceReply reply;
    const grpc::Status status = stub->Invoice(&context, request, &reply);
    if (!status.ok()) return wire::FromGrpc(status);
    return reply;
  };
}

absl::StatusOr<Pages> PagesOfBooks(const AccountFlags& flags) {
  const std::string folder = DataFolderOr(flags.data);
  OB_ASSIGN_OR_RETURN(
      const std::string path,
      BooksIn(folder, "name the folder with --data, or a gateway with --gateway"));
  struct Books {
    std::unique_ptr<gateway::Ledger> ledger;
    std::unique_ptr<gateway::HeadSigner> heads;
    std::unique_ptr<gateway::ReceiptRows> receipts;
    gateway::TenantId tenant;
  };
  auto books = std::make_shared<Books>();
  OB_ASSIGN_OR_RETURN(const auto accounts, gateway::Accounts::Open(path));
  OB_ASSIGN_OR_RETURN(const gateway::Tenant tenant,
                      AccountNamed(*accounts, flags.account_name, folder));
  books->tenant = tenant.id;
  OB_ASSIGN_OR_RETURN(books->ledger, gateway::Ledger::Open(path));
  OB_ASSIGN_OR_RETURN(books->receipts, gateway::ReceiptRows::Open(path));
  OB_ASSIGN_OR_RETURN(signing::SigningKey key,
                      signing::SigningKey::Open(gateway::LedgerKeyPath(folder)));
  books->heads = std::make_unique<gateway::HeadSigner>(books->ledger.get(), std::move(key));
  return [books](int64_t after) -> absl::StatusOr<proto::InvoiceReply> {
    proto::InvoiceReply reply;
    OB_RETURN_IF_ERROR(
        gateway::InvoicePage(*books->ledger, *books->heads, *books->receipts, books->tenant, after,
                             reply));
    return reply;
  };
}

// Those of this account that this user's programs were shown: by the gateway of that address,
// whatever its key, or with that key, wherever it was.
absl::StatusOr<std::vector<proto::LedgerHead>> SeenHeads(const std::string& target,
                                                         const proto::LedgerHead& now) {
  std::vector<proto::LedgerHead> heads;
  const std::string path = signing::HeadFilePath();
  if (path.empty()) return heads;
  OB_ASSIGN_OR_RETURN(const signing::HeadFile::Heads file, signing::HeadFile(path).Read());
  if (file.damaged_lines > 0)
    std::fprintf(stderr, "outboard: %zu lines of %s are damaged and are not compared\n",
                 file.damaged_lines, path.c_str());
  for (const signing::SeenHead& seen : file.heads)
    if (seen.head.account() == now.account() &&
        ((!target.empty() && seen.target == target) || seen.head.key() == now.key()))
      heads.push_back(seen.head);
  return heads;
}

void PrintEntry(const proto::InvoiceEntry& entry, int64_t account, bool json) {
  const std::string name = gateway::LedgerAccount::Tenant({account}).name;
  MicroUsd amount;
  for (const proto::InvoiceSide& side : entry.sides())
    if (side.account() == name) amount.value = side.amount_micro_usd();
  const std::string at = gateway::ToString(gateway::WallTime{entry.at_unix_ms()});
  const proto::InvoiceUse& use = entry.use();
  const auto session = gateway::SessionId::FromBytes(use.session_id());
  if (json) {
    std::printf("{\"entry\": %lld, \"at\": \"%s\", \"amount_micro_usd\": %lld",
                static_cast<long long>(entry.number()), at.c_str(),
                static_cast<long long>(amount.value));
    if (session.has_value())
      std::printf(
          ", \"session\": \"%s\", \"lease\": %llu, \"device\": %u, \"from_ms\": %lld, \"to_ms\": "
          "%lld, \"price_per_hour_micro_usd\": %lld",
          session->Hex().c_str(), static_cast<unsigned long long>(use.grant()), use.device(),
          static_cast<long long>(use.from() * use.unit_ms()),
          static_cast<long long>(use.to() * use.unit_ms()),
          static_cast<long long>(use.price_per_hour_micro_usd()));
    else
      std::printf(", \"memo\": %s", Quoted(entry.memo()).c_str());
    std::printf("}\n");
    return;
  }
  if (session.has_value())
    std::printf("%8lld  %s  %s  %6.1f s at %s an hour  %s\n",
                static_cast<long long>(entry.number()), at.c_str(),
                session->Hex().substr(0, 12).c_str(),
                static_cast<double>((use.to() - use.from()) * use.unit_ms()) / 1000,
                ToString(MicroUsd{use.price_per_hour_micro_usd()}).c_str(),
                ToString(amount).c_str());
  else
    std::printf("%8lld  %s  %-40s  %s\n", static_cast<long long>(entry.number()), at.c_str(),
                Printable(entry.memo()).c_str(), ToString(amount).c_str());
}

void PrintChecked(const gateway::InvoiceReport& report, bool json) {
  if (json) {
    std::printf(
        "{\"verified\": true, \"entries\": %lld, \"billed_ms\": %lld, \"cost_micro_usd\": %lld, "
        "\"balance_micro_usd\": %lld, \"leases\": %lld, \"leases_with_receipts\": %lld, "
        "\"heads_compared\": %lld}\n",
        static_cast<long long>(report.entries), static_cast<long long>(report.used.device_ms),
        static_cast<long long>(report.used.amount.value),
        static_cast<long long>(report.balance.value), static_cast<long long>(report.leases),
        static_cast<long long>(report.leases_receipted),
        static_cast<long long>(report.heads_seen));
    return;
  }
  std::printf(
      "verified: %lld entries, %.3f s for %s, balance %s; %lld of %lld leased devices have a "
      "receipt of their worker; %lld heads that were signed before agree\n",
      static_cast<long long>(report.entries), static_cast<double>(report.used.device_ms) / 1000,
      ToString(report.used.amount).c_str(), ToString(report.balance).c_str(),
      static_cast<long long>(report.leases_receipted), static_cast<long long>(report.leases),
      static_cast<long long>(report.heads_seen));
}

absl::Status Invoice(const AccountFlags& flags) {
  if (!flags.gateway.empty() && flags.account_name != AccountFlags().account_name)
    return absl::InvalidArgumentError(
        "--account is of a data folder; with --gateway the account is that of $CLOUD_KEY");
  OB_ASSIGN_OR_RETURN(const Pages pages,
                      flags.gateway.empty() ? PagesOfBooks(flags) : PagesOfGateway(flags.gateway));
  std::unique_ptr<gateway::InvoiceCheck> check;
  proto::LedgerHead head;
  for (int64_t after = 0;;) {
    OB_ASSIGN_OR_RETURN(const proto::InvoiceReply page, pages(after));
    head = page.head();
    if (flags.verify && check == nullptr) {
      OB_ASSIGN_OR_RETURN(std::vector<proto::LedgerHead> seen, SeenHeads(flags.gateway, head));
      check = std::make_unique<gateway::InvoiceCheck>(std::move(seen));
    }
    for (const proto::InvoiceEntry& entry : page.entries()) {
      if (check != nullptr) {
        OB_RETURN_IF_ERROR(check->Add(entry));
      } else {
        PrintEntry(entry, head.account(), flags.json);
      }
    }
    if (check != nullptr)
      for (const proto::Receipt& receipt : page.receipts())
        OB_RETURN_IF_ERROR(check->AddReceipt(receipt));
    if (page.next() == 0) break;
    if (page.next() <= after)
      return absl::DataLossError("the gateway's reply names an earlier page as the next");
    after = page.next();
  }
  if (check == nullptr) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const gateway::InvoiceReport report, check->Finish(head));
  PrintChecked(report, flags.json);
  return absl::OkStatus();
}

absl::Status AuditBooks(const AccountFlags& flags) {
  const std::string folder = DataFolderOr(flags.data);
  OB_ASSIGN_OR_RETURN(const std::string path, BooksIn(folder, kNameTheGatewaysFolder));
  OB_ASSIGN_OR_RETURN(const gateway::AuditReport report, gateway::Audit(folder, path));
  const std::vector<gateway::WorkerShortfall> workers = gateway::ByWorker(report.shortfalls);
  if (flags.json) {
    std::string findings;
    for (const gateway::WorkerShortfall& of : workers)
      absl::StrAppend(&findings, findings.empty() ? "" : ", ", "{\"worker_key\": ",
                      Quoted(of.worker), ", \"leased_devices\": ", of.devices,
                      ", \"charged_ms\": ", of.charged_ms, ", \"signed_ms\": ", of.signed_ms,
                      "}");
    std::printf(
        "{\"verified\": true, \"entries\": %lld, \"lines\": %lld, \"head\": \"%s\", "
        "\"audited_before\": %lld, \"receipts_fall_short\": [%s]}\n",
        static_cast<long long>(report.ledger.entries), static_cast<long long>(report.ledger.lines),
        report.ledger.head_hash.c_str(), static_cast<long long>(report.verified_before),
        findings.c_str());
    return absl::OkStatus();
  }
  std::printf("verified: %lld entries of all accounts, head %s; the first %lld were audited "
              "before and are the same\n",
              static_cast<long long>(report.ledger.entries), report.ledger.head_hash.c_str(),
              static_cast<long long>(report.verified_before));
  for (const gateway::WorkerShortfall& of : workers)
    std::printf("the worker with the receipt key %s... signed for less than is charged: %lld "
                "leased devices, %.3f s charged, %.3f s signed for\n",
                of.worker.c_str(), static_cast<long long>(of.devices),
                static_cast<double>(of.charged_ms) / 1000,
                static_cast<double>(of.signed_ms) / 1000);
  return absl::OkStatus();
}

absl::Status ArchiveMonth(const AccountFlags& flags) {
  const std::string folder = DataFolderOr(flags.data);
  OB_ASSIGN_OR_RETURN(const std::string path, BooksIn(folder, kNameTheGatewaysFolder));
  OB_ASSIGN_OR_RETURN(const auto ledger, gateway::Ledger::Open(path));
  OB_ASSIGN_OR_RETURN(const int64_t moved, ledger->ArchiveMonth(flags.month, gateway::WallNow()));
  if (flags.json)
    std::printf("{\"month\": %s, \"moved\": %lld}\n", Quoted(flags.month).c_str(),
                static_cast<long long>(moved));
  else
    std::printf("%lld entries are in %s/ledger-%s.db now\n", static_cast<long long>(moved),
                folder.c_str(), flags.month.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunArchive(const AccountFlags& flags) { return Report(ArchiveMonth(flags)); }
int RunInvoice(const AccountFlags& flags) { return Report(Invoice(flags)); }
int RunAudit(const AccountFlags& flags) { return Report(AuditBooks(flags)); }

}  // namespace outboard::cli
