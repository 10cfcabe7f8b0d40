#include "gateway/accounts/accounts.h"

#include <grpcpp/client_context.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/commands.h"
#include "cli/common.h"
#include "client/session/address.h"
#include "client/session/link/grpc_link.h"
#include "gateway/base/clock.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/gateway.h"
#include "proto/account.grpc.pb.h"
#include "wire/status.h"

namespace outboard::cli {

namespace {

using gateway::Accounts;
using gateway::ApiKey;

constexpr std::chrono::milliseconds kAnswerWithin{3000};

std::string DataFolder(const AccountFlags& flags) {
  return flags.data.empty() ? DefaultDataFolder() : flags.data;
}

bool HasAccounts(const AccountFlags& flags) {
  std::error_code error;
  return std::filesystem::exists(gateway::AccountsPath(DataFolder(flags)), error);
}

// Of a gateway that has run, or for which a key was made.
absl::StatusOr<std::unique_ptr<Accounts>> OpenAccounts(const AccountFlags& flags) {
  if (HasAccounts(flags)) return Accounts::Open(gateway::AccountsPath(DataFolder(flags)));
  return absl::InvalidArgumentError("no accounts in " + DataFolder(flags) +
                                    "; name the gateway's folder with --data");
}

// Says so if these are the first: the key is of no use to a gateway with another folder.
absl::StatusOr<std::unique_ptr<Accounts>> OpenOrMakeAccounts(const AccountFlags& flags) {
  if (HasAccounts(flags)) return OpenAccounts(flags);
  std::string folder = DataFolder(flags);
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

int Print(const gateway::Usage& usage, bool json) {
  std::string text = json ? gateway::UsageJson(usage) + "\n" : gateway::UsageTable(usage);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

absl::StatusOr<gateway::Usage> AskGateway(const std::string& target, const char* key) {
  if (absl::Status status = session::CheckTarget("--gateway", target); !status.ok()) return status;
  if (absl::Status status = session::CheckKeyText("CLOUD_KEY", key == nullptr ? "" : key);
      !status.ok())
    return status;
  auto channel = session::MakeChannel(target);
  if (absl::Status status = session::WaitConnected(*channel, target, kAnswerWithin); !status.ok())
    return status;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
  if (key != nullptr) context.AddMetadata("authorization", std::string("Bearer ") + key);
  proto::UsageReply reply;
  grpc::Status status =
      proto::Account::NewStub(channel)->Usage(&context, proto::UsageRequest(), &reply);
  if (!status.ok()) return wire::FromGrpc(status);
  gateway::Usage usage;
  usage.device_seconds = static_cast<int64_t>(reply.seconds_billed());
  usage.amount.value = static_cast<int64_t>(reply.cost_micro_usd());
  for (const proto::UsageLine& line : reply.lines()) {
    gateway::SessionUsage session;
    session.session = gateway::SessionId::FromHex(line.session_id()).value_or(gateway::SessionId());
    session.devices = line.devices();
    session.granted_at.unix_ms = line.started_unix_s() * 1000;
    session.device_seconds = static_cast<int64_t>(line.seconds_billed());
    session.amount.value = static_cast<int64_t>(line.cost_micro_usd());
    usage.sessions.push_back(session);
  }
  return usage;
}

}  // namespace

int RunKeyCreate(const AccountFlags& flags) {
  auto accounts = OpenOrMakeAccounts(flags);
  if (!accounts.ok()) return Report(accounts.status());
  auto tenant = (*accounts)->EnsureTenant(flags.tenant, gateway::WallNow());
  if (!tenant.ok()) return Report(tenant.status());
  auto key = (*accounts)->CreateKey(tenant->id, flags.name, gateway::WallNow());
  if (!key.ok()) return Report(key.status());
  std::string text(key->text.Reveal());
  if (flags.json) {
    std::printf("{\"id\": \"%s\", \"tenant\": %s, \"name\": %s, \"key\": \"%s\"}\n",
                key->key.id.c_str(), Quoted(flags.tenant).c_str(), Quoted(flags.name).c_str(),
                text.c_str());
  } else {
    // The key alone on stdout, for `CLOUD_KEY=$(outboard key create)`.
    std::printf("%s\n", text.c_str());
    std::fprintf(stderr, "outboard: key %s of %s in %s; it is shown this once\n",
                 key->key.id.c_str(), flags.tenant.c_str(), DataFolder(flags).c_str());
  }
  return 0;
}

int RunKeyList(const AccountFlags& flags) {
  auto accounts = OpenAccounts(flags);
  if (!accounts.ok()) return Report(accounts.status());
  auto keys = (*accounts)->ListKeys();
  if (!keys.ok()) return Report(keys.status());
  if (!flags.json) std::printf("%-16s  %-20s  %-20s  %s\n", "id", "name", "created", "state");
  for (const ApiKey& key : *keys) {
    std::string created = gateway::ToString(key.created_at);
    const char* state = key.revoked_at.has_value() ? "revoked" : "good";
    if (flags.json) {
      std::printf("{\"id\": \"%s\", \"name\": %s, \"created\": \"%s\", \"state\": \"%s\"}\n",
                  key.id.c_str(), Quoted(key.name).c_str(), created.c_str(), state);
    } else {
      std::printf("%-16s  %-20s  %-20s  %s\n", key.id.c_str(), key.name.c_str(), created.c_str(),
                  state);
    }
  }
  return 0;
}

int RunKeyRevoke(const AccountFlags& flags) {
  auto accounts = OpenAccounts(flags);
  if (!accounts.ok()) return Report(accounts.status());
  return Report((*accounts)->RevokeKey(flags.id, gateway::WallNow()));
}

int RunUsage(const AccountFlags& flags) {
  if (!flags.gateway.empty()) {
    auto usage = AskGateway(flags.gateway, std::getenv("CLOUD_KEY"));
    return usage.ok() ? Print(*usage, flags.json) : Report(usage.status());
  }
  storage::OpenOptions existing;
  existing.create = false;
  auto ledger = gateway::Ledger::Open(gateway::AccountsPath(DataFolder(flags)), existing);
  if (!ledger.ok()) {
    if (!absl::IsNotFound(ledger.status())) return Report(ledger.status());
    return Report(
        absl::InvalidArgumentError("no accounts in " + DataFolder(flags) +
                                   "; name the folder with --data, or a gateway with --gateway"));
  }
  auto usage = (*ledger)->UsageOfAll();
  return usage.ok() ? Print(*usage, flags.json) : Report(usage.status());
}

}  // namespace outboard::cli
