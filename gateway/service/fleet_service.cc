#include "gateway/service/fleet_service.h"

#include <algorithm>

#include "gateway/service/caller.h"
#include "gateway/service/streams.h"
#include "proto/status.h"

namespace outboard::gateway {

grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* FleetService::Join(
    grpc::CallbackServerContext* context) {
  return new ControlStream(hub_, *context, options_);
}

grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* FleetService::Attach(
    grpc::CallbackServerContext* context) {
  return new ExecutorStream(hub_, *context);
}

grpc::ServerUnaryReactor* FleetService::Keep(grpc::CallbackServerContext* context,
                                             const proto::KeepRequest* request, proto::KeepReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  pool_->Post([this, reactor, request, caller = Caller::Of(*context)] {
    const auto finish = [reactor](const absl::Status& status) {
      reactor->Finish(wire::ToGrpc(status));
    };
    if (!caller.session.has_value())
      return finish(absl::UnauthenticatedError("Keep needs outboard-session and outboard-token"));
    wire::Hash manifest;
    if (request->manifest_root().size() != manifest.size())
      return finish(absl::InvalidArgumentError("manifest_root is a hash of 32 bytes"));
    std::copy(request->manifest_root().begin(), request->manifest_root().end(), manifest.begin());
    const SessionId session = *caller.session;
    const auto tenant = hub_->TenantOf(session, caller.token);
    // Not PERMISSION_DENIED: it was this session's executor, once.
    if (!tenant.ok()) return finish(absl::AbortedError(tenant.status().message()));
    if (request->what() == proto::KeepRequest::CHECKPOINT)
      return catalogue_->KeepCheckpoint(*tenant, session, request->name(), manifest, finish);
    const auto told = [this, session, finish](const absl::Status& status) {
      // Nobody else lets go of what was kept for a session that has ended meanwhile.
      if (absl::IsNotFound(status)) catalogue_->EndSession(session);
      finish(status);
    };
    catalogue_->KeepSnapshot(*tenant, session, manifest, request->seq(),
                             [this, session, request, finish, told](const absl::Status& kept) {
                               if (!kept.ok()) return finish(kept);
                               hub_->KeepSnapshot(session, request->manifest_root(), request->seq(),
                                                  told);
                             });
  });
  return reactor;
}

}  // namespace outboard::gateway
