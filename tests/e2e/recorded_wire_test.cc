// Yesterday's clients against today's gateway and worker: sessions that were recorded
// (recorded/README.md) are played byte for byte, and the answers have to be those that were given
// then.
#include "tests/e2e/recorded_wire.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/dtype.h"
#include "proto/cloud.pb.h"
#include "tests/support/cluster.h"
#include "tests/support/paths.h"

namespace outboard {
namespace {

using test::WireRecord;

// What the server has said on one stream: said then, or said now.
struct Said {
  struct Value {
    uint32_t dtype = 0;
    std::vector<uint64_t> dims;
    std::string bytes;
  };
  bool opened = false;
  std::string token;
  uint32_t protocol = 0;
  uint64_t through_seq = 0;
  std::map<std::pair<uint64_t, uint32_t>, Value> values;
  std::map<uint64_t, uint32_t> failures;  // codes by seq

  void Hear(const std::string& bytes) {
    proto::ServerFrame frame;
    ASSERT_TRUE(frame.ParseFromString(bytes));
    for (const proto::ServerItem& item : frame.items()) {
      if (item.has_opened()) {
        opened = true;
        token = item.opened().resume_token();
        protocol = item.opened().protocol();
      }
      if (item.has_failed()) failures[item.failed().seq()] = item.failed().code();
      through_seq = std::max<uint64_t>(through_seq, item.done().through_seq());
      for (const proto::Value& piece : item.done().values()) {
        Value& value = values[{piece.seq(), piece.index()}];
        if (piece.offset() == 0) value = {piece.dtype(), {}, ""};
        value.dims.assign(piece.dims().begin(), piece.dims().end());
        value.bytes += piece.data();
      }
    }
  }

  // All that `then` has, of whatever value.
  bool Covers(const Said& then) const {
    if (opened < then.opened || through_seq < then.through_seq) return false;
    for (const auto& [key, value] : then.values) {
      const auto it = values.find(key);
      if (it == values.end() || it->second.bytes.size() < value.bytes.size()) return false;
    }
    for (const auto& [seq, code] : then.failures)
      if (!failures.contains(seq)) return false;
    return true;
  }
};

// One stream of raw messages. Everything happens in the caller's thread; a minute ends it.
class RawStream {
 public:
  RawStream(std::shared_ptr<grpc::Channel> channel, const std::string& key) : stub_(channel) {
    context_.AddMetadata("authorization", "Bearer " + key);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    call_ = stub_.PrepareCall(&context_, "/outboard.proto.Cloud/Session", &queue_);
    call_->StartCall(Tag(kStart));
    EXPECT_TRUE(Await(kStart));
    call_->Read(&incoming_, Tag(kRead));
  }
  ~RawStream() {
    if (!finished_) {
      context_.TryCancel();
      Finish();
    }
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), Tag(kWrite));
    return Await(kWrite);
  }
  // False at the end of the stream.
  bool AwaitAll(const Said& then) {
    while (!said.Covers(then))
      if (!reading_ || !Step()) return said.Covers(then);
    return true;
  }
  void Cancel() { context_.TryCancel(); }
  grpc::StatusCode End() {
    call_->WritesDone(Tag(kWrite));
    Await(kWrite);
    while (reading_ && Step()) {
    }
    return Finish();
  }

  Said said;

 private:
  enum Operation : intptr_t { kStart = 1, kRead, kWrite, kFinish };
  static void* Tag(Operation operation) { return reinterpret_cast<void*>(operation); }

  // One completion; reads go on.
  bool Step() {
    void* tag;
    if (!queue_.Next(&tag, &ok_)) return false;
    last_ = static_cast<Operation>(reinterpret_cast<intptr_t>(tag));
    if (last_ != kRead) return true;
    reading_ = ok_;
    if (!ok_) return true;
    std::vector<grpc::Slice> slices;
    incoming_.Dump(&slices);
    std::string bytes;
    for (const grpc::Slice& slice : slices)
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    said.Hear(bytes);
    incoming_.Clear();
    call_->Read(&incoming_, Tag(kRead));
    return true;
  }
  bool Await(Operation operation) {
    do {
      if (!Step()) return false;
    } while (last_ != operation);
    return ok_;
  }
  grpc::StatusCode Finish() {
    finished_ = true;
    grpc::Status status;
    call_->Finish(&status, Tag(kFinish));
    Await(kFinish);
    return status.error_code();
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer incoming_;
  bool reading_ = true, finished_ = false, ok_ = false;
  Operation last_ = kStart;
};

// Floats by the tolerance of docs/semantics.md, grown over a dozen steps of training; the rest by
// bits.
void ExpectSame(const Said::Value& then, const Said::Value& now) {
  EXPECT_EQ(now.dtype, then.dtype);
  EXPECT_EQ(now.dims, then.dims);
  ASSERT_EQ(now.bytes.size(), then.bytes.size());
  if (then.dtype != static_cast<uint32_t>(DType::kF32)) {
    EXPECT_EQ(now.bytes, then.bytes);
    return;
  }
  for (size_t at = 0; at < then.bytes.size(); at += sizeof(float)) {
    float a, b;
    std::memcpy(&a, then.bytes.data() + at, sizeof a);
    std::memcpy(&b, now.bytes.data() + at, sizeof b);
    ASSERT_NEAR(a, b, 1e-3 * (1 + std::fabs(a))) << "float " << at / sizeof(float);
  }
}

struct Played {
  size_t values = 0, failures = 0, streams = 0;
};

class RecordedWireTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { cluster_.StartUp(1, "", {GetParam()}); }

  Played Play(const std::string& path) {
    Played played;
    const auto records = test::ReadRecords(path);
    EXPECT_TRUE(records.has_value()) << path;
    if (!records) return played;
    auto channel = grpc::CreateChannel(cluster_.target(), grpc::InsecureChannelCredentials());
    std::unique_ptr<RawStream> stream;
    Said then;
    std::string token_then, token_now;
    const auto compare = [&] {
      if (stream == nullptr) return;
      EXPECT_TRUE(stream->AwaitAll(then)) << path;
      for (const auto& [key, value] : then.values) {
        SCOPED_TRACE("item " + std::to_string(key.first));
        ExpectSame(value, stream->said.values[key]);
      }
      EXPECT_EQ(stream->said.failures, then.failures);
      played.values += then.values.size();
      played.failures += then.failures.size();
    };
    for (const WireRecord& record : *records) {
      switch (record.kind) {
        case WireRecord::kStream:
          stream = std::make_unique<RawStream>(channel, cluster_.key());
          then = {};
          ++played.streams;
          break;
        case WireRecord::kServerFrame: then.Hear(record.bytes); break;
        case WireRecord::kClientFrame: {
          EXPECT_TRUE(stream->AwaitAll(then)) << path;
          if (then.opened && token_then.empty()) {
            token_then = then.token;
            token_now = stream->said.token;
          }
          std::string bytes = record.bytes;
          const size_t at = token_then.empty() ? std::string::npos : bytes.find(token_then);
          if (at != std::string::npos) bytes.replace(at, token_then.size(), token_now);
          EXPECT_TRUE(stream->Send(bytes)) << path;
          break;
        }
        case WireRecord::kCut:
          compare();
          stream->Cancel();
          stream.reset();
          break;
        case WireRecord::kEnd: {
          compare();
          EXPECT_EQ(stream->said.protocol, then.protocol);
          EXPECT_EQ(static_cast<char>(stream->End()), record.bytes.at(0)) << path;
          break;
        }
      }
      if (::testing::Test::HasFailure()) break;
    }
    return played;
  }

  test::Cluster cluster_;
};

const std::string kRecordings = test::SourceFile("tests/e2e/recorded/");

TEST_P(RecordedWireTest, ATrainingOfProtocol1) {
  const Played played = Play(kRecordings + "v1/training.bin");
  EXPECT_EQ(played.streams, 1u);
  EXPECT_GE(played.values, 8u + 8u);  // losses, and the tensors of the net
  EXPECT_EQ(played.failures, 1u);
}

TEST_P(RecordedWireTest, ASessionOfProtocol1ThatIsResumed) {
  const Played played = Play(kRecordings + "v1/resume.bin");
  EXPECT_EQ(played.streams, 2u);
  EXPECT_GE(played.values, 12u + 8u);
}

INSTANTIATE_TEST_SUITE_P(, RecordedWireTest, ::testing::Values("REF=0", "REF=1"),
                         [](const auto& info) {
                           return info.param[4] == '1' ? "Interpreted" : "Compiled";
                         });

}  // namespace
}  // namespace outboard
