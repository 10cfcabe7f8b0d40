// Tests of machines that boot over the network, at a gateway with TLS: as what asks for a
// certificate, and as the worker that process 1 starts.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "client/session/link/grpc_link.h"
#include "client/session/protection.h"
#include "gateway/nodes/node_words.h"
#include "gateway/tls/authority_files.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/cluster.h"
#include "wire/status.h"
#include "wire/tls/authority.h"
#include "wire/tls/private_file.h"

namespace outboard::test {

using Identity = std::shared_ptr<const tls::KeyAndChain>;

class NodeTest : public ::testing::Test {
 protected:
  void StartGateway(const std::string& more = "") {
    cluster_.StartGateway("--tls " + more);
    authority_.emplace(gateway::ReadAuthority(cluster_.data()).value());
  }
  std::string Fingerprint() const { return authority_->certificate().fingerprint().ToString(); }
  Ended Node(const std::string& args) {
    return Outboard("node " + args + " --data " + cluster_.data());
  }
  std::string Claim(const std::string& serial) {
    const Ended made = Node("claim --serial " + serial);
    EXPECT_EQ(made.code, 0) << made.err;
    return made.out.substr(0, made.out.find('\n'));
  }
  std::unique_ptr<proto::Fleet::Stub> Fleet(const Identity& identity = nullptr) {
    auto protection = session::Protection::Trusting("", Fingerprint(), {}).value();
    protection.identity = identity;
    return proto::Fleet::NewStub(session::MakeChannel(cluster_.fleet_target(), protection));
  }
  absl::Status EnrolKey(const tls::PrivateKey& key, const std::string& serial,
                        const std::string& claim, const Identity& with = nullptr,
                        Identity* enrolled = nullptr) {
    proto::EnrolNodeRequest request;
    request.set_certificate_request(tls::MakeRequest(key).value());
    request.mutable_facts()->set_serial(serial);
    request.mutable_facts()->add_mac("52:54:00:12:34:56");
    request.set_claim(claim);
    grpc::ClientContext context;
    proto::EnrolReply reply;
    const absl::Status status = wire::FromGrpc(Fleet(with)->EnrolNode(&context, request, &reply));
    if (status.ok() && enrolled != nullptr)
      *enrolled = std::make_shared<const tls::KeyAndChain>(tls::KeyAndChain{
          key, tls::Certificate::ParseAll("its", reply.certificate_chain()).value()});
    return status;
  }
  absl::Status Enrol(const std::string& serial, const std::string& claim,
                     const Identity& with = nullptr, Identity* enrolled = nullptr) {
    return EnrolKey(tls::PrivateKey::Generate().value(), serial, claim, with, enrolled);
  }
  static std::string Word(const absl::Status& status) {
    return std::string(gateway::NodeWord(std::string(status.message())));
  }
  absl::Status Log(const Identity& identity, const std::string& line) {
    grpc::ClientContext context;
    proto::NodeLogRequest request;
    request.add_lines(line);
    proto::NodeLogReply reply;
    return wire::FromGrpc(Fleet(identity)->NodeLog(&context, request, &reply));
  }
  // Without a fleet secret: a node joins by its certificate alone.
  absl::Status Join(const Identity& identity) {
    grpc::ClientContext context;
    const auto stub = Fleet(identity);
    const auto stream = stub->Join(&context);
    proto::WorkerEvent of_no_device;
    of_no_device.mutable_register_();
    stream->Write(of_no_device);
    for (proto::GatewayCommand command; stream->Read(&command);) {
    }
    return wire::FromGrpc(stream->Finish());
  }
  // The worker of a node, as process 1 starts it.
  std::string NodeFolder(const std::string& serial, const std::string& claim) {
    const std::string folder = cluster_.folder() / ("node-" + serial);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/log") << "from the first second\n";
    if (claim.empty()) return folder;
    EXPECT_TRUE(
        tls::WriteFile(folder + "/claim", claim, /*is_secret=*/true, tls::Replace::kYes).ok());
    return folder;
  }
  std::string WorkerArgs(const std::string& serial, const std::string& claim) {
    return "worker --gateway " + cluster_.fleet_target() + " --tls-fingerprint " + Fingerprint() +
           " --name " + serial + " --node-folder " + NodeFolder(serial, claim);
  }
  session::SessionOptions Options() {
    session::SessionOptions options = cluster_.Options();
    options.protection = session::Protection::Trusting("", Fingerprint(), {}).value();
    return options;
  }

  Cluster cluster_;
  std::optional<tls::Authority> authority_;
};

}  // namespace outboard::test
