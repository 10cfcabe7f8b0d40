#include "gateway/accounts/accounts.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "cli/books/account_named.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/connect.h"
#include "client/session/address.h"
#include "gateway/accounts/usage_report.h"
#include "gateway/base/clock.h"
#include "gateway/server/gateway.h"
#include "gateway/tls/authority_files.h"
#include "proto/account.grpc.pb.h"
#include "wire/status.h"

namespace outboard::cli {

namespace {

using gateway::Accounts;
using gateway::ApiKey;

constexpr std::chrono::seconds kAnswersWithin{30};  // a page, behind those of others

bool HasAccounts(const AccountFlags& flags) {
  std::error_code error;
  return std::filesystem::exists(gateway::AccountsPath(DataFolderOr(flags.data)), error);
}

// Of a gateway that has run, or for which a key was made.
absl::StatusOr<std::unique_ptr<Accounts>> OpenAccounts(const AccountFlags& flags) {
  if (HasAccounts(flags)) return Accounts::Open(gateway::AccountsPath(DataFolderOr(flags.data)));
  return absl::InvalidArgumentError("no accounts in " + DataFolderOr(flags.data) +
                                    "; name the gateway's folder with --data");
}

// Says so if these are the first: the key is of no use to a gateway with another folder.
absl::StatusOr<std::unique_ptr<Accounts>> OpenOrMakeAccounts(const AccountFlags& flags) {
  if (HasAccounts(flags)) return OpenAccounts(flags);
  std::string folder = DataFolderOr(flags.data);
  std::fprintf(stderr,
               "outboard: %s has no accounts yet; making them, for a gateway with --data %s\n",
               folder.c_str(), folder.c_str());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return absl::InvalidArgumentError("cannot make the data folder " + folder + ": " +
                                      error.message());
  return Accounts::Open(gateway::AccountsPath(folder));
}

// "2026-01-31" or "2026-01-31T12:00:00Z", in whole seconds; a time without a zone is UTC.
// `others`: further forms that the flag takes, for the message.
absl::StatusOr<gateway::WallTime> TimeFrom(const char* flag, const std::string& text,
                                           const char* others = "") {
  for (const char* format : {"%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", absl::RFC3339_full}) {
    absl::Time time;
    if (!absl::ParseTime(format, text, &time, nullptr)) continue;
    if (time < absl::UnixEpoch() || time > absl::FromUnixSeconds(gateway::kLatestUnixS)) break;
    return gateway::WallTime{absl::ToUnixSeconds(time) * 1000};
  }
  return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", text, "\" is no time like ", others,
                                                 "2026-01-31 or 2026-01-31T12:00:00Z"));
}

// "30d" or "12h" from now, or a time.
absl::StatusOr<gateway::WallTime> ExpiryFrom(const std::string& text) {
  constexpr int64_t kCountMax = 1'000'000;
  int64_t count = 0;
  const char unit = text.empty() ? ' ' : text.back();
  if ((unit == 'd' || unit == 'h') && absl::SimpleAtoi(text.substr(0, text.size() - 1), &count) &&
      count > 0 && count <= kCountMax) {
    const int64_t hours = unit == 'd' ? 24 * count : count;
    return gateway::WallTime{gateway::WallNow().unix_ms + hours * 3'600'000};
  }
  return TimeFrom("--expires", text, "30d, 12h, ");
}

// Returns `value`; if that is an error, one that begins with the flag and its text.
template <typename Value>
absl::StatusOr<Value> NamingFlag(const char* flag, const std::string& text,
                                 absl::StatusOr<Value> value) {
  if (value.ok()) return value;
  return absl::Status(value.status().code(), absl::StrCat(flag, " is \"", text, "\": ",
                                                          value.status().message()));
}

absl::StatusOr<gateway::KeyRights> RightsFrom(const AccountFlags& flags) {
  gateway::KeyRights rights;
  OB_ASSIGN_OR_RETURN(rights.scopes,
                      NamingFlag("--scope", flags.scopes, gateway::Scopes::Parse(flags.scopes)));
  if (!flags.expires.empty()) {
    OB_ASSIGN_OR_RETURN(rights.expires_at, ExpiryFrom(flags.expires));
  }
  for (const std::string& text : flags.from) {
    OB_ASSIGN_OR_RETURN(gateway::AddressRange range,
                        NamingFlag("--from", text, gateway::AddressRange::Parse(text)));
    rights.from.push_back(range);
  }
  return rights;
}

// A number of a gateway's reply, as the books have it.
absl::StatusOr<int64_t> NumberOf(uint64_t number) {
  if (number > INT64_MAX) return absl::DataLossError("the gateway's reply is damaged");
  return static_cast<int64_t>(number);
}

// One page after the other of a report.
using Pages = std::function<absl::StatusOr<gateway::UsagePage>(const std::string& after)>;

absl::StatusOr<gateway::UsagePage> PageOf(const proto::UsageReply& reply, bool first) {
  gateway::UsagePage page;
  page.next = reply.next();
  if (first) {
    OB_ASSIGN_OR_RETURN(const int64_t ms, NumberOf(reply.billed_ms()));
    OB_ASSIGN_OR_RETURN(const int64_t cost, NumberOf(reply.cost_micro_usd()));
    page.total = gateway::Usage{ms, {cost}};
  }
  for (const proto::UsageLine& line : reply.lines()) {
    const auto id = gateway::SessionId::FromHex(line.session_id());
    if (!id.has_value() || line.started_unix_s() < 0 ||
        line.started_unix_s() > gateway::kLatestUnixS)
      return absl::DataLossError("the gateway's reply is damaged");
    gateway::SessionUsage& session = page.sessions.emplace_back();
    session.session = *id;
    session.began_at.unix_ms = line.started_unix_s() * 1000;
    session.open = line.running();
    session.devices = line.devices();
    if (line.has_used_ms()) {
      OB_ASSIGN_OR_RETURN(session.used_ms, NumberOf(line.used_ms()));
    }
    session.used_at_least = line.used_at_least();
    OB_ASSIGN_OR_RETURN(session.charged.device_ms, NumberOf(line.billed_ms()));
    OB_ASSIGN_OR_RETURN(session.charged.amount.value, NumberOf(line.cost_micro_usd()));
  }
  return page;
}

absl::StatusOr<Pages> PagesOfGateway(const std::string& target, const std::string& key,
                                     gateway::WallTime since) {
  OB_RETURN_IF_ERROR(session::CheckTarget("--gateway", target));
  OB_RETURN_IF_ERROR(session::CheckKeyText("CLOUD_KEY", key));
  OB_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, ConnectWithEnvironment(target));
  return [=, stub = std::shared_ptr(proto::Account::NewStub(channel))](
             const std::string& after) -> absl::StatusOr<gateway::UsagePage> {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswersWithin);
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    proto::UsageRequest request;
    request.set_since_unix_s(since.unix_ms / 1000);
    request.set_after(after);
    proto::UsageReply reply;
    const grpc::Status status = stub->Usage(&context, request, &reply);
    if (!status.ok()) return wire::FromGrpc(status);
    return PageOf(reply, after.empty());
  };
}

absl::StatusOr<Pages> PagesOfBooks(const AccountFlags& flags, gateway::WallTime since) {
  auto report = gateway::UsageReport::Open(gateway::AccountsPath(DataFolderOr(flags.data)));
  if (absl::IsNotFound(report.status()))
    return absl::InvalidArgumentError("no accounts in " + DataFolderOr(flags.data) +
                                      "; name the folder with --data, or a gateway with --gateway");
  if (!report.ok()) return report.status();
  return [since, report = std::shared_ptr(*std::move(report))](const std::string& after) {
    return report->Read({.since = since, .after = after});
  };
}

absl::Status PrintUsage(const AccountFlags& flags) {
  gateway::WallTime since;
  if (!flags.since.empty()) {
    OB_ASSIGN_OR_RETURN(since, TimeFrom("--since", flags.since));
  }
  if (!flags.by.empty()) return PrintUsageBy(flags, since);
  const char* const key = std::getenv("CLOUD_KEY");
  OB_ASSIGN_OR_RETURN(const Pages pages,
                      flags.gateway.empty()
                          ? PagesOfBooks(flags, since)
                          : PagesOfGateway(flags.gateway, key == nullptr ? "" : key, since));
  gateway::UsageText text(flags.json);
  std::string after;
  do {
    OB_ASSIGN_OR_RETURN(const gateway::UsagePage page, pages(after));
    std::fputs(text.Add(page).c_str(), stdout);
    if (!page.next.empty() && page.next == after)
      return absl::DataLossError("the gateway's reply names itself as the next page");
    after = page.next;
  } while (!after.empty());
  std::fputs(text.End().c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

int RunKeyCreate(const AccountFlags& flags) {
  const auto rights = RightsFrom(flags);
  if (!rights.ok()) return Report(rights.status());
  auto accounts = OpenOrMakeAccounts(flags);
  if (!accounts.ok()) return Report(accounts.status());
  auto tenant = (*accounts)->EnsureTenant(flags.account_name, gateway::WallNow());
  if (!tenant.ok()) return Report(tenant.status());
  auto key = (*accounts)->CreateKey(tenant->id, flags.name, gateway::WallNow(), *rights);
  if (!key.ok()) return Report(key.status());
  std::string text(key->text.Reveal());
  const auto fingerprint = gateway::FingerprintForClients(DataFolderOr(flags.data));
  if (!fingerprint.ok())
    std::fprintf(stderr, "outboard: the key is made, but there is no fingerprint beside it: %s\n",
                 std::string(fingerprint.status().message()).c_str());
  if (flags.json) {
    std::printf(
        "{\"id\": \"%s\", \"account\": %s, \"name\": %s, \"key\": \"%s\", \"fingerprint\": "
        "\"%s\"}\n",
        key->key.id.c_str(), Quoted(flags.account_name).c_str(), Quoted(flags.name).c_str(),
        text.c_str(),
        fingerprint.ok() ? fingerprint->c_str() : "");
  } else {
    // The key alone on stdout, for `CLOUD_KEY=$(outboard key create)`.
    std::printf("%s\n", text.c_str());
    std::fprintf(stderr, "outboard: key %s of %s in %s; it is shown this once\n",
                 key->key.id.c_str(), flags.account_name.c_str(), DataFolderOr(flags.data).c_str());
    if (fingerprint.ok() && !fingerprint->empty())
      std::fprintf(stderr,
                   "outboard: a client on another machine needs CLOUD_FINGERPRINT=%s beside it\n",
                   fingerprint->c_str());
  }
  return 0;
}

namespace {

std::string Date(const std::optional<gateway::WallTime>& time) {
  return time.has_value() ? gateway::ToString(*time).substr(0, 10) : "never";
}

// Lines of 80 columns: what a key is, when, and if it is limited, from where.
void PrintKey(const ApiKey& key, const char* state) {
  std::string name = key.name;
  if (name.size() > 30) name = name.substr(0, 28) + "..";
  std::printf("%-16s  %-30s  %-21s  %s\n", key.id.c_str(), name.c_str(),
              key.rights.scopes.ToString().c_str(), state);
  std::printf("  created %-10s  expires %-10s  used %s\n", Date(key.created_at).c_str(),
              Date(key.rights.expires_at).c_str(),
              key.used_at.has_value() ? gateway::ToString(*key.used_at).c_str() : "never");
  for (const gateway::AddressRange& range : key.rights.from)
    std::printf("  from %s\n", range.ToString().c_str());
}

void PrintKeyAsJson(const ApiKey& key, const char* state) {
  const auto time = [](const std::optional<gateway::WallTime>& at) {
    return at.has_value() ? Quoted(gateway::ToString(*at)) : std::string("null");
  };
  std::printf(
      "{\"id\": \"%s\", \"name\": %s, \"created\": %s, \"state\": \"%s\", \"scopes\": \"%s\", "
      "\"expires\": %s, \"used\": %s, \"from\": \"%s\"}\n",
      key.id.c_str(), Quoted(key.name).c_str(), time(key.created_at).c_str(), state,
      key.rights.scopes.ToString().c_str(), time(key.rights.expires_at).c_str(),
      time(key.used_at).c_str(), gateway::ToString(key.rights.from).c_str());
}

}  // namespace

int RunKeyList(const AccountFlags& flags) {
  auto accounts = OpenAccounts(flags);
  if (!accounts.ok()) return Report(accounts.status());
  auto keys = (*accounts)->ListKeys();
  if (!keys.ok()) return Report(keys.status());
  std::fprintf(stderr, "outboard: the keys in %s\n", DataFolderOr(flags.data).c_str());
  if (!flags.json) std::printf("%-16s  %-30s  %-21s  %s\n", "id", "name", "scopes", "state");
  const gateway::WallTime now = gateway::WallNow();
  for (const ApiKey& key : *keys) {
    const char* state = key.revoked_at.has_value() ? "revoked"
                        : key.StandsAt(now)        ? "good"
                                                   : "expired";
    flags.json ? PrintKeyAsJson(key, state) : PrintKey(key, state);
  }
  return 0;
}

int RunKeyRevoke(const AccountFlags& flags) {
  auto accounts = OpenAccounts(flags);
  if (!accounts.ok()) return Report(accounts.status());
  const absl::Status revoked = (*accounts)->RevokeKey(flags.id, gateway::WallNow());
  if (!absl::IsNotFound(revoked)) return Report(revoked);
  return Report(NoSuchKey(flags.id));
}

void AddAccount(Command command, AccountFlags& flags, const std::string& help) {
  const Option account = command.Add("--account", &flags.account_name, help).ShowDefault();
  command.Add("--tenant", &flags.account_name).Hidden().Excludes(account);
}

namespace {

// Does `change` to the account of that name.
absl::Status Change(const AccountFlags& flags,
                    const std::function<absl::Status(Accounts&, const std::string&)>& change) {
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<Accounts> accounts, OpenAccounts(flags));
  OB_ASSIGN_OR_RETURN(const gateway::Tenant account,
                      AccountNamed(*accounts, flags.account_name, DataFolderOr(flags.data)));
  return change(*accounts, account.name);
}

}  // namespace

int RunAccountSuspend(const AccountFlags& flags) {
  return Report(Change(flags, [](Accounts& accounts, const std::string& name) {
    return accounts.SuspendTenant(name, gateway::WallNow());
  }));
}

int RunAccountResume(const AccountFlags& flags) {
  return Report(Change(flags, [](Accounts& accounts, const std::string& name) {
    return accounts.ResumeTenant(name);
  }));
}

int RunAccountShareTuning(const AccountFlags& flags) {
  if (flags.on_off != "on" && flags.on_off != "off")
    return Report(absl::InvalidArgumentError(
        absl::StrCat("share-tuning is \"on\" or \"off\", not \"", flags.on_off, "\"")));
  return Report(Change(flags, [&](Accounts& accounts, const std::string& name) {
    return accounts.SetSharesTuning(name, flags.on_off == "on");
  }));
}

int RunAccountList(const AccountFlags& flags) {
  auto accounts = OpenAccounts(flags);
  if (!accounts.ok()) return Report(accounts.status());
  const auto tenants = (*accounts)->ListTenants();
  if (!tenants.ok()) return Report(tenants.status());
  for (const gateway::Tenant& tenant : *tenants)
    std::printf("%-9s  %-15s  %s\n", tenant.suspended_at.has_value() ? "suspended" : "good",
                tenant.shares_tuning ? "shares tuning" : "tunes alone", tenant.name.c_str());
  return 0;
}

int RunUsage(const AccountFlags& flags) { return Report(PrintUsage(flags)); }

}  // namespace outboard::cli
