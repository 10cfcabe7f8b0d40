// Enrolling: a worker's token again, a serial number twice, a certificate that has expired. Against
// a gateway of their own, whose workers join by TLS and prove their names (--worker-tokens).
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/check.h"
#include "client/session/link/grpc_link.h"
#include "client/session/protection.h"
#include "gateway/server/fleet_secret.h"
#include "gateway/tls/authority_files.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/hostile/hostile_case.h"
#include "tests/support/step.h"
#include "wire/status.h"
#include "wire/tls/authority.h"
#include "wire/tls/private_file.h"

namespace outboard::test {
namespace {

using Identity = std::shared_ptr<const tls::KeyAndChain>;

class TokenFleet {
 public:
  explicit TokenFleet(HostileWorld& world) : replies_(world.replies()) {
    cluster_.StartGateway("--tls --worker-tokens");
    secret_ = gateway::ReadFleetSecret(gateway::FleetSecretPath(cluster_.data())).value();
    authority_.emplace(gateway::ReadAuthority(cluster_.data()).value());
  }

  // The line that `outboard cert token` prints.
  std::string MakeToken(const std::string& name) {
    const Ended made = Outboard("cert token " + name + " --data " + cluster_.data());
    EXPECT_EQ(made.code, 0) << made.err;
    return made.out.substr(0, made.out.find('\n'));
  }
  std::unique_ptr<proto::Fleet::Stub> Fleet(Identity identity = nullptr) {
    auto protection =
        session::Protection::Trusting("", authority_->certificate().fingerprint().ToString(), {})
            .value();
    protection.identity = std::move(identity);
    return proto::Fleet::NewStub(session::MakeChannel(cluster_.fleet_target(), protection));
  }
  // `enrolled`, if not null, is set to the identity that the gateway issues.
  absl::Status Enrol(const std::string& name, const std::string& token, Identity with = nullptr,
                     Identity* enrolled = nullptr) {
    return EnrolKey(tls::PrivateKey::Generate().value(), name, token, std::move(with), enrolled);
  }
  absl::Status EnrolKey(tls::PrivateKey key, const std::string& name, const std::string& token,
                        Identity with = nullptr, Identity* enrolled = nullptr) {
    proto::EnrolRequest request;
    request.set_certificate_request(tls::MakeRequest(key).value());
    request.set_name(name);
    request.set_token(token);
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + secret_);
    proto::EnrolReply reply;
    const absl::Status status =
        replies_.Note(wire::FromGrpc(Fleet(std::move(with))->Enrol(&context, request, &reply)));
    EXPECT_EQ(status.ok(), !reply.certificate_chain().empty());
    if (status.ok() && enrolled != nullptr)
      *enrolled = std::make_shared<const tls::KeyAndChain>(tls::KeyAndChain{
          std::move(key), tls::Certificate::ParseAll("its", reply.certificate_chain()).value()});
    return status;
  }
  absl::Status Join(const Identity& identity) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + secret_);
    const auto stub = Fleet(identity);
    const auto stream = stub->Join(&context);
    proto::WorkerEvent of_no_device;
    of_no_device.mutable_register_();
    stream->Write(of_no_device);
    for (proto::GatewayCommand command; stream->Read(&command);) {
    }
    return replies_.Note(wire::FromGrpc(stream->Finish()));
  }
  // An honest worker joins, and a step there is right.
  void CheckHonestWorker(const std::string& name) {
    const std::string file = cluster_.folder() / ("token-" + name);
    EXPECT_TRUE(tls::WriteFile(file, MakeToken(name), /*is_secret=*/true, tls::Replace::kYes).ok());
    const std::string flags = "worker --gateway " + cluster_.fleet_target() +
                              " --fleet-secret-file " + cluster_.data() + "/fleet.secret" +
                              " --tls --name " + name + " --token-file " + file +
                              " --identity-file " + cluster_.folder() / name;
    session::SessionOptions options = cluster_.Options();
    options.protection = session::Protection::Trusting(
                             "", gateway::FingerprintForClients(cluster_.data()).value(), {})
                             .value();
    for (int start = 0; start < 2; ++start) {  // again with the token spent: it has a certificate
      const auto worker = cluster_.Start(flags);
      auto session = Session::Connect(options);
      EXPECT_TRUE(session.ok()) << session.status();
      if (!session.ok()) return;
      EXPECT_TRUE(Step(**session).ok());
      EXPECT_TRUE((*session)->Close().ok());
      EXPECT_EQ(worker->Stop(SIGINT), 0) << worker->err();
    }
  }
  const tls::Authority& authority() const { return *authority_; }
  Cluster& cluster() { return cluster_; }

 private:
  Replies& replies_;
  Cluster cluster_;
  std::string secret_;
  std::optional<tls::Authority> authority_;
};

}  // namespace

absl::Status NodeTokenReplay(HostileWorld& world) {
  TokenFleet fleet(world);
  // Without one, with none that was made, for another name: nothing is given.
  const std::string token = fleet.MakeToken("gpu-1");
  for (const auto& [name, shown] : {std::pair<std::string, std::string>("gpu-1", ""),
                                    {"gpu-1", "ob_worker_" + std::string(64, '0')},
                                    {"gpu-2", token}})
    EXPECT_EQ(fleet.Enrol(name, shown).code(), absl::StatusCode::kPermissionDenied) << name;
  for (const std::string& name : {std::string(), std::string(61, 'n'), std::string("gpu\n1")})
    EXPECT_EQ(fleet.Enrol(name, token).code(), absl::StatusCode::kInvalidArgument) << name;
  Identity first;
  const tls::PrivateKey key = tls::PrivateKey::Generate().value();
  EXPECT_TRUE(fleet.EnrolKey(key, "gpu-1", token).ok());
  // That answer was lost. Its key gets another, and nobody else's does.
  EXPECT_TRUE(fleet.EnrolKey(key, "gpu-1", token, nullptr, &first).ok());
  EXPECT_EQ(fleet.Enrol("gpu-1", token).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(fleet.EnrolKey(key, "gpu-2", token).code(), absl::StatusCode::kPermissionDenied);
  // Its certificate was lost, and revoked: the token is spent all the same.
  EXPECT_EQ(Outboard("cert revoke gpu-1 --data " + fleet.cluster().data()).code, 0);
  absl::Status replayed;
  EXPECT_TRUE(Eventually([&] {  // the list of revoked ones is read every second
    replayed = fleet.Enrol("gpu-1", token);
    return replayed.message().find("was used") != std::string::npos;
  })) << replayed;
  EXPECT_EQ(fleet.EnrolKey(key, "gpu-1", token).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(fleet.Join(first).code(), absl::StatusCode::kUnauthenticated);
  fleet.CheckHonestWorker("gpu-3");
  return replayed;
}

absl::Status NodeTwoClaimOneSerial(HostileWorld& world) {
  TokenFleet fleet(world);
  Identity first, renewed;
  const std::string one = fleet.MakeToken("serial-7"), two = fleet.MakeToken("serial-7");
  EXPECT_TRUE(fleet.Enrol("serial-7", one, nullptr, &first).ok());
  const absl::Status second = fleet.Enrol("serial-7", two);
  // The first renews by what it has, under its own name alone.
  EXPECT_TRUE(fleet.Enrol("serial-7", "", first, &renewed).ok());
  EXPECT_EQ(fleet.Enrol("serial-8", "", first).code(), absl::StatusCode::kPermissionDenied);
  // It is let in, and then speaks no protocol.
  EXPECT_EQ(fleet.Join(renewed).code(), absl::StatusCode::kFailedPrecondition);
  fleet.CheckHonestWorker("serial-9");
  return second;
}

absl::Status NodeCertExpired(HostileWorld& world) {
  TokenFleet fleet(world);
  const auto expired = std::make_shared<const tls::KeyAndChain>(
      fleet.authority()
          .Issue({.common_name = "gpu-1", .purpose = tls::Purpose::kWorker, .lifetime_s = -10})
          .value());
  // Nor does it renew itself.
  EXPECT_EQ(fleet.Enrol("gpu-1", "", expired).code(), absl::StatusCode::kPermissionDenied);
  const absl::Status joined = fleet.Join(expired);
  fleet.CheckHonestWorker("gpu-1");
  return joined;
}

}  // namespace outboard::test
