// `outboard ps` and `outboard stop`: an account's sessions at a gateway, asked with its key.
#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/connect.h"
#include "gateway/ledger/money.h"
#include "proto/account.grpc.pb.h"
#include "wire/proof/head_file.h"
#include "wire/status.h"

namespace outboard::cli {

namespace {

struct SessionFlags {
  std::string gateway;  // empty: $CLOUD_HOST
  std::vector<std::string> sessions;  // stop: names or ids
  bool json = false;
};

constexpr std::chrono::seconds kAnswersWithin{30};

class Sessions {
 public:
  static absl::StatusOr<Sessions> Connect(const SessionFlags& flags) {
    OB_ASSIGN_OR_RETURN(const UserGateway gateway, ConnectToGateway(flags.gateway));
    Sessions sessions;
    sessions.target_ = gateway.target;
    sessions.key_ = gateway.key;
    sessions.stub_ = proto::Account::NewStub(gateway.channel);
    return sessions;
  }

  absl::StatusOr<proto::ListSessionsReply> List() {
    proto::ListSessionsReply reply;
    const auto context = Context();
    const grpc::Status status = stub_->ListSessions(context.get(), {}, &reply);
    if (!status.ok()) return wire::FromGrpc(status);
    if (reply.has_head()) NoteHead(reply.head());
    return reply;
  }

  absl::StatusOr<proto::StopSessionReply> Stop(const std::string& session) {
    proto::StopSessionRequest request;
    request.set_session(session);
    proto::StopSessionReply reply;
    const auto context = Context();
    const grpc::Status status = stub_->StopSession(context.get(), request, &reply);
    if (!status.ok()) return wire::FromGrpc(status);
    if (reply.has_head()) NoteHead(reply.head());
    return reply;
  }

 private:
  std::unique_ptr<grpc::ClientContext> Context() const {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + kAnswersWithin);
    if (!key_.empty()) context->AddMetadata("authorization", "Bearer " + key_);
    return context;
  }

  // Heads of the ledger are kept for `outboard invoice --verify`, as a program's session does.
  void NoteHead(const proto::LedgerHead& head) const {
    const std::string file = signing::HeadFilePath();
    if (file.empty()) return;
    if (const absl::Status kept = signing::HeadFile(file).Add({target_, head}); !kept.ok())
      absl::FPrintF(stderr, "outboard: the ledger's head is not kept: %s\n",
                    std::string(kept.message()));
  }

  std::string target_, key_;
  std::unique_ptr<proto::Account::Stub> stub_;
};

std::string Cost(uint64_t micro_usd) {
  return gateway::ToString(gateway::MicroUsd{static_cast<int64_t>(
      std::min<uint64_t>(micro_usd, static_cast<uint64_t>(INT64_MAX)))});
}

// "12 s", "3 min", "5 h 10 min", "2 d 3 h".
std::string Age(uint64_t ms) {
  const uint64_t s = ms / 1000;
  if (s < 60) return absl::StrCat(s, " s");
  if (s < 3600) return absl::StrCat(s / 60, " min");
  if (s < 86'400) return absl::StrCat(s / 3600, " h ", s / 60 % 60, " min");
  return absl::StrCat(s / 86'400, " d ", s / 3600 % 24, " h");
}

void PrintAsJson(const proto::SessionInfo& session) {
  absl::PrintF(
      "{\"session\": %s, \"name\": %s, \"state\": %s, \"devices\": %d, \"age_s\": %.1f, "
      "\"billed_ms\": %d, \"cost_micro_usd\": %d, \"has_client\": %s, \"stopped\": %s}\n",
      Quoted(session.session_id()), session.name().empty() ? "null" : Quoted(session.name()),
      Quoted(session.state()), session.devices(), static_cast<double>(session.age_ms()) / 1e3,
      session.billed_ms(), session.cost_micro_usd(), session.has_client() ? "true" : "false",
      session.stopped().empty() ? "null" : Quoted(session.stopped()));
}

int RunPs(const SessionFlags& flags) {
  auto sessions = Sessions::Connect(flags);
  if (!sessions.ok()) return Report(sessions.status());
  const auto reply = sessions->List();
  if (!reply.ok()) return Report(reply.status());
  size_t width = 4;
  for (const proto::SessionInfo& session : reply->sessions())
    width = std::max(width, session.name().size());
  const int name = static_cast<int>(std::min<size_t>(width, 64));
  if (!flags.json && reply->sessions_size() > 0)
    absl::PrintF("%-*s  %-8s  %7s  %-12s  %12s  %s\n", name, "name", "state", "devices", "age",
                 "cost", "id");
  for (const proto::SessionInfo& session : reply->sessions()) {
    if (flags.json) {
      PrintAsJson(session);
      continue;
    }
    absl::PrintF("%-*s  %-8s  %7d  %-12s  %12s  %s\n", name,
                 session.name().empty() ? "-" : Printable(session.name()),
                 Printable(session.state()), session.devices(), Age(session.age_ms()),
                 Cost(session.cost_micro_usd()), Printable(session.session_id()));
    if (!session.stopped().empty()) absl::PrintF("  stopped: %s\n", Printable(session.stopped()));
  }
  return 0;
}

int RunStop(const SessionFlags& flags) {
  auto sessions = Sessions::Connect(flags);
  if (!sessions.ok()) return Report(sessions.status());
  for (const std::string& session : flags.sessions) {
    const auto reply = sessions->Stop(session);
    if (!reply.ok()) return Report(reply.status());
    if (flags.json)
      absl::PrintF("{\"session\": %s, \"cost_micro_usd\": %d}\n", Quoted(reply->session_id()),
                   reply->cost_micro_usd());
    else
      absl::PrintF("%s  ended, about %s\n", Printable(session), Cost(reply->cost_micro_usd()));
  }
  return 0;
}

}  // namespace

void AddSessionCommands(Arguments& app) {
  const auto flags = std::make_shared<SessionFlags>();
  SessionFlags& listed = *flags;
  Command ps = app.Subcommand("ps", "List the account's sessions: name, state, age, cost");
  Command stop = app.Subcommand("stop", "End sessions of the account, with their state");
  stop.Add("session", &listed.sessions, "Names or ids, as `ps` prints them").Required();
  for (Command command : {ps, stop}) {
    command.Add("--gateway", &listed.gateway,
                "HOST:PORT or unix:/path (default: $CLOUD_HOST); the key is $CLOUD_KEY");
    command.Add("--json", &listed.json, "Print JSON");
  }
  ps.Runs(flags, RunPs);
  stop.Runs(flags, RunStop);
}

}  // namespace outboard::cli
