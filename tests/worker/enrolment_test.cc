// A worker's certificate: an answer that is lost, a gateway that knows it no more, and what is kept
// for the next start.
#include "worker/supervisor/join/enrolment.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/support/temp_folder.h"
#include "wire/tls/authority.h"

namespace outboard::worker {
namespace {

// A gateway that issues what it is asked for, and may lose its answer.
class Issuer final : public proto::Fleet::Service {
 public:
  grpc::Status Enrol(grpc::ServerContext*, const proto::EnrolRequest* request,
                     proto::EnrolReply* reply) override {
    const auto chain = ValueOrDie(authority_.IssueFor(
        request->certificate_request(),
        {.common_name = request->name(), .purpose = tls::Purpose::kWorker, .lifetime_s = 3600}));
    keys.push_back(chain.front().key_id());
    if (std::exchange(loses_next, false)) return {grpc::StatusCode::UNAVAILABLE, "lost"};
    for (const tls::Certificate& one : chain) *reply->mutable_certificate_chain() += one.ToPem();
    return grpc::Status::OK;
  }
  std::vector<std::string> keys;  // of the requests
  bool loses_next = false;

 private:
  const tls::Authority authority_ = ValueOrDie(tls::Authority::Generate("ca"));
};

class EnrolmentTest : public ::testing::Test {
 protected:
  EnrolmentTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&issuer_);
    server_ = builder.BuildAndStart();
  }
  EnrolmentOptions Options(const std::string& token) {
    return {.name = "gpu-1",
            .fleet_secret = "secret",
            .token = token,
            .file = file_,
            .connect = [this](std::shared_ptr<const tls::KeyAndChain>) {
              return FleetChannels{server_->InProcessChannel({}), {}};
            }};
  }
  bool HasFile(const std::string& suffix = "") const {
    return std::filesystem::exists(file_ + suffix);
  }

  test::TempFolder folder_;
  const std::string file_ = folder_ / "worker.pem";
  Issuer issuer_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(EnrolmentTest, AnAnswerThatWasLost_IsAskedForWithTheSameKey) {
  Enrolment enrolment(Options("token"));
  issuer_.loses_next = true;
  EXPECT_FALSE(enrolment.Channels().ok());
  ASSERT_TRUE(enrolment.Channels().ok());
  ASSERT_EQ(issuer_.keys.size(), 2u);
  EXPECT_EQ(issuer_.keys[0], issuer_.keys[1]);
  EXPECT_TRUE(HasFile());
  EXPECT_FALSE(HasFile(".new"));
}

TEST_F(EnrolmentTest, AlsoByAWorkerThatWasStartedAgain) {
  issuer_.loses_next = true;
  EXPECT_FALSE(Enrolment(Options("token")).Channels().ok());
  EXPECT_TRUE(HasFile(".new"));
  ASSERT_TRUE(Enrolment(Options("token")).Channels().ok());
  ASSERT_EQ(issuer_.keys.size(), 2u);
  EXPECT_EQ(issuer_.keys[0], issuer_.keys[1]);
  EXPECT_FALSE(HasFile(".new"));
}

// Without a token any key is as good as another, and nothing is left on the disk.
TEST_F(EnrolmentTest, WithoutAToken_NothingIsWritten) {
  ASSERT_TRUE(Enrolment(Options("")).Channels().ok());
  EXPECT_FALSE(HasFile());
  EXPECT_FALSE(HasFile(".new"));
}

TEST_F(EnrolmentTest, ARefusedCertificate_IsReplacedOnceUntilOneIsAccepted) {
  Enrolment enrolment(Options("token"));
  EXPECT_FALSE(enrolment.Refused()) << "it has none";
  ASSERT_TRUE(enrolment.Channels().ok());
  EXPECT_FALSE(enrolment.IsDue());
  EXPECT_TRUE(enrolment.Refused());
  EXPECT_TRUE(enrolment.IsDue());
  ASSERT_TRUE(enrolment.Channels().ok());
  EXPECT_EQ(issuer_.keys.size(), 2u);
  EXPECT_NE(issuer_.keys[0], issuer_.keys[1])
      << "a certificate that was given is not asked for again";
  EXPECT_FALSE(enrolment.Refused()) << "another will not help";
  enrolment.Accepted();
  EXPECT_TRUE(enrolment.Refused());
}

TEST_F(EnrolmentTest, ARefusedCertificate_IsNotUsedOnWhereNoOtherIsGiven) {
  Enrolment enrolment(Options("token"));
  ASSERT_TRUE(enrolment.Channels().ok());
  EXPECT_TRUE(enrolment.Refused());
  issuer_.loses_next = true;
  EXPECT_FALSE(enrolment.Channels().ok());
  EXPECT_TRUE(enrolment.Channels().ok());
}

}  // namespace
}  // namespace outboard::worker
