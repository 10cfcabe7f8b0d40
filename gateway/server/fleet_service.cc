#include "gateway/server/fleet_service.h"

#include <algorithm>

#include "gateway/data_path/core_driver.h"
#include "gateway/streams/streams.h"
#include "gateway/server/caller.h"
#include "wire/status.h"

namespace outboard::gateway {

grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* FleetService::Join(
    grpc::CallbackServerContext* context) {
  return new ControlStream(driver_, gatekeeper_, *context);
}

grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* FleetService::Attach(
    grpc::CallbackServerContext* context) {
  return new ExecutorStream(driver_, gatekeeper_, *context);
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
    const std::optional<wire::Hash> manifest = wire::HashFromBytes(request->manifest_root());
    if (!manifest) return finish(absl::InvalidArgumentError("manifest_root is a hash of 32 bytes"));
    const SessionId session = *caller.session;
    const auto tenant = driver_->TenantOf(session, caller.token);
    if (absl::IsUnavailable(tenant.status())) return finish(tenant.status());
    // Not PERMISSION_DENIED: it once was this session's executor.
    if (!tenant.ok()) return finish(absl::AbortedError(tenant.status().message()));
    if (request->what() == proto::KeepRequest::CHECKPOINT)
      return catalogue_->KeepCheckpoint(*tenant, session, request->name(), *manifest, finish);
    const auto write = [this, session, token = caller.token, root = request->manifest_root(),
                        seq = request->seq()](const BlobRetention::Done& written) {
      driver_->KeepSnapshot(session, token, root, seq,
                            [this, session, written](absl::Status status) {
                              written(status);
                              // Nobody else lets go of what was kept for a session that has ended
                              // meanwhile.
                              if (absl::IsNotFound(status)) catalogue_->EndSession(session);
                            });
    };
    catalogue_->KeepSnapshot(*tenant, session, *manifest, request->seq(), write, finish);
  });
  return reactor;
}

}  // namespace outboard::gateway
