// An upload against a store that forgets.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "proto/cloud.grpc.pb.h"
#include "tests/support/port_alone.h"
#include "wire/blobs/upload.h"
#include "wire/limits.h"

namespace outboard::wire {
namespace {

// Says that it has every chunk, and has none when it is told to put them together.
class Forgetful : public proto::Blobs::Service {
 public:
  std::atomic<int> asked{0}, pieces{0}, commits{0};
  bool gone = false;
  int forgets = 1;  // so many times

 private:
  grpc::Status Missing(grpc::ServerContext*, const proto::MissingRequest* request,
                       proto::MissingReply* reply) override {
    if (gone) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return {grpc::StatusCode::UNAVAILABLE, ""};
    }
    if (++asked > forgets) *reply->mutable_chunks() = request->chunks();
    return grpc::Status::OK;
  }
  grpc::Status Upload(grpc::ServerContext*, grpc::ServerReader<proto::BlobPiece>* reader,
                      proto::UploadReply*) override {
    for (proto::BlobPiece piece; reader->Read(&piece);) ++pieces;
    return grpc::Status::OK;
  }
  grpc::Status Commit(grpc::ServerContext*, const proto::CommitRequest*,
                      proto::CommitReply*) override {
    ++commits;
    if (pieces > 0) return grpc::Status::OK;
    return {grpc::StatusCode::NOT_FOUND, "a chunk is not here"};
  }
};

class BlobUploadTest : public ::testing::Test {
 protected:
  BlobUploadTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    test::HaveAPortAlone(builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    connections_.channels.push_back(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                        grpc::InsecureChannelCredentials()));
  }
  ~BlobUploadTest() override { server_->Shutdown(); }

  absl::StatusOr<Uploaded> Send() {
    const BlobSource source = SourceOf(bytes_);
    return UploadBlobs(connections_, {&source, 1}, {});
  }

  const std::string bytes_ = "a few bytes";
  Forgetful service_;
  std::unique_ptr<grpc::Server> server_;
  BlobConnections connections_;
};

TEST_F(BlobUploadTest, AChunkThatWentAfterItWasAskedForIsSentAfterAll) {
  const absl::StatusOr<Uploaded> uploaded = Send();
  ASSERT_TRUE(uploaded.ok()) << uploaded.status();
  EXPECT_EQ(uploaded->names[0].root, NameBlob(bytes_).root);
  EXPECT_EQ(uploaded->sent_bytes, bytes_.size());
  EXPECT_EQ(service_.commits, 2);
}

TEST_F(BlobUploadTest, AStoreThatForgetsAgainIsAnError) {
  service_.forgets = 2;
  EXPECT_EQ(Send().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(service_.commits, 2);
}

// While one connection finds that nobody is there, the others hash: that is no progress.
TEST_F(BlobUploadTest, AGoneGatewayIsGivenUpHoweverMuchThereIsToHash) {
  service_.gone = true;
  connections_.channels.resize(4, connections_.channels[0]);
  const BlobSource large{.size_bytes = 500 * uint64_t{kBlobChunkBytes},
                         .read = [](uint64_t offset, std::span<char> into) {
                           std::fill(into.begin(), into.end(), static_cast<char>(offset >> 22));
                           return absl::OkStatus();
                         }};
  const auto began = std::chrono::steady_clock::now();
  const auto uploaded =
      UploadBlobs(connections_, {&large, 1}, {.retry_for = std::chrono::seconds(1)});
  EXPECT_TRUE(absl::IsUnavailable(uploaded.status())) << uploaded.status();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

}  // namespace
}  // namespace outboard::wire
