#include "gateway/nodes/node_calls.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/base/clock.h"
#include "gateway/nodes/driver_rows.h"
#include "gateway/nodes/node_enrolment.h"
#include "gateway/nodes/node_logs.h"
#include "gateway/server/authenticator.h"
#include "gateway/streams/unary_call.h"
#include "gateway/streams/work_queues.h"
#include "gateway/tls/fleet_door.h"
#include "gateway/tls/worker_admission.h"
#include "telemetry/log.h"

namespace outboard::gateway {
namespace {

using telemetry::CallMethod;

constexpr uint64_t kNoAccount = 0;  // accounts count from 1

absl::Status NoTls() {
  return absl::FailedPreconditionError(
      "this port has no TLS: nodes that boot over the network cannot join here");
}

// A node without its drivers serves with its CPUs: no reason to refuse it.
void AddDriver(DriverRows& drivers, const proto::NodeFacts& facts, proto::EnrolReply& reply) {
  const auto driver = drivers.ForKernel(facts.kernel());
  if (!driver.ok())
    telemetry::LogWarning("node_driver_not_read", {{"node", facts.serial()},
                                                   {"message", driver.status().message()}});
  if (!driver.ok() || !driver->has_value()) return;
  reply.mutable_driver()->set_digest((*driver)->digest);
  reply.mutable_driver()->set_bytes((*driver)->bytes);
  reply.mutable_driver()->set_kernel((*driver)->kernel);
}

}  // namespace

grpc::ServerBidiReactor<proto::EnrolNodeRequest, proto::EnrolReply>* ServeEnrolNode(
    grpc::CallbackServerContext* context, const Nodes& nodes, FleetDoor* door, WorkQueues* queues) {
  using Call = UnaryCall<proto::EnrolNodeRequest, proto::EnrolReply>;
  const std::string peer = Authenticator::CredentialsOf(*context).peer;
  const auto let_in = [nodes, door, peer](CallRecord&, const Call::Then& then) {
    if (nodes.enrolment == nullptr) return then(NoTls());
    if (door->MayAsk(peer)) return then(Admitted{});
    then(absl::UnavailableError(
        "too many wrong claims came from this address; try again in some seconds"));
  };
  const auto enrol = [=](const Admitted&, const proto::EnrolNodeRequest* request,
                         proto::EnrolReply* reply, const Call::Done& done) {
    queues->pool.Post(kNoAccount, [=] {  // signs, writes files
      // A claim is good once: it is not spent on a node that has given up waiting.
      if (context->IsCancelled()) return done(absl::CancelledError("the node has hung up"));
      const auto answer =
          nodes.enrolment->Enrol(*context->auth_context(), *request, peer,
                                 {.wall = WallNow(), .mono = MonoNow()});
      if (absl::IsPermissionDenied(answer.status()))
        return door->Refuse(peer, answer.status(), done);
      if (!answer.ok()) return done(answer.status());
      if (answer->challenge.has_value()) {
        *reply->mutable_challenge() = *answer->challenge;
        return done(absl::OkStatus());
      }
      for (const tls::Certificate& one : answer->chain)
        reply->mutable_certificate_chain()->append(one.ToPem());
      AddDriver(*nodes.drivers, request->facts(), *reply);
      done(absl::OkStatus());
    });
  };
  return new Call(CallMethod::kEnrolNode, context, &queues->requests, let_in, enrol);
}

grpc::ServerBidiReactor<proto::NodeLogRequest, proto::NodeLogReply>* ServeNodeLog(
    grpc::CallbackServerContext* context, const Nodes& nodes, WorkerAdmission* admission,
    WorkQueues* queues) {
  using Call = UnaryCall<proto::NodeLogRequest, proto::NodeLogReply>;
  const std::string serial =
      admission == nullptr ? "" : admission->NodeOf(*context->auth_context());
  const auto let_in = [nodes, serial](CallRecord&, const Call::Then& then) {
    if (nodes.logs == nullptr) return then(NoTls());
    if (!serial.empty()) return then(Admitted{});
    then(absl::PermissionDeniedError("only a node that has enrolled has a log here"));
  };
  const auto keep = [nodes, serial, queues](const Admitted&, const proto::NodeLogRequest* request,
                                           proto::NodeLogReply*, const Call::Done& done) {
    if (request->lines_size() > kNodeLogLinesMax)
      return done(absl::InvalidArgumentError(
          absl::StrCat("NodeLog: ", request->lines_size(), " lines; limit ", kNodeLogLinesMax)));
    queues->pool.Post(kNoAccount, [nodes, serial, request, done] {
      std::vector<std::string_view> lines(request->lines().begin(), request->lines().end());
      done(nodes.logs->Append(serial, lines));
    });
  };
  return new Call(CallMethod::kNodeLog, context, &queues->requests, let_in, keep);
}

}  // namespace outboard::gateway
