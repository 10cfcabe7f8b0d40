// Blobs: wrong bytes, wrong sizes, others' hashes, names that are paths.
#include <gtest/gtest.h>
#include <zlib.h>

#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/hostile/hostile_case.h"
#include "tests/hostile/two_samples.h"
#include "tests/support/client_items.h"
#include "tests/support/random_bytes.h"
#include "tests/support/raw_session.h"
#include "wire/merkle.h"

namespace outboard::test {
namespace {

using absl::StatusCode;
using proto::Blobs;
using proto::Store;

std::string HashOf(const std::string& chunk) {
  return std::string(wire::AsBytes(wire::HashChunk(chunk)));
}

// Whether the gateway asks for the chunk.
bool IsMissing(HostileClient& client, const std::string& chunk) {
  proto::MissingRequest request;
  request.add_chunks(chunk);
  proto::MissingReply reply;
  const absl::Status status = client.Unary(&Blobs::Stub::Missing, request, &reply);
  EXPECT_TRUE(status.ok()) << status;
  return reply.chunks_size() == 1;
}

proto::CommitRequest CommitOf(const std::string& bytes, uint64_t size_bytes) {
  const wire::Hash chunk = wire::HashChunk(bytes);
  proto::CommitRequest commit;
  commit.set_root(std::string(wire::AsBytes(wire::MerkleRoot({&chunk, 1}, size_bytes))));
  commit.add_chunks(std::string(wire::AsBytes(chunk)));
  commit.set_size_bytes(size_bytes);
  return commit;
}

// `bytes` zeros in about a thousandth of them.
std::string GzipOfZeros(size_t bytes) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string zeros(1 << 20, '\0'), packed(1 << 20, '\0'), all;
  for (size_t at = 0; at <= bytes; at += zeros.size()) {
    stream.next_in = reinterpret_cast<Bytef*>(zeros.data());
    stream.avail_in = at < bytes ? static_cast<uInt>(zeros.size()) : 0;
    do {
      stream.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_out = static_cast<uInt>(packed.size());
      deflate(&stream, at < bytes ? Z_NO_FLUSH : Z_FINISH);
      all.append(packed.data(), packed.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  }
  deflateEnd(&stream);
  return all;
}

}  // namespace

absl::Status BlobHashMismatch(HostileWorld& world) {
  HostileClient mallory = world.Mallory();
  const std::string hash = HashOf("the bytes that were promised");
  const absl::Status status = mallory.Upload({Piece(hash, 4, 0, "evil")});
  EXPECT_TRUE(IsMissing(mallory, hash));
  return status;
}

absl::Status BlobShort(HostileWorld& world) {
  HostileClient mallory = world.Mallory();
  const std::string bytes = "four more are missing: ????";
  const std::string half = bytes.substr(0, 10);
  // As from a client that was cut off: it may go on, and nobody sees a part of it.
  EXPECT_EQ(mallory.Upload({Piece(HashOf(bytes), bytes.size(), 0, half)}).code(),
            StatusCode::kAborted);
  EXPECT_TRUE(IsMissing(mallory, HashOf(bytes)));
  EXPECT_EQ(mallory.Ask(&Blobs::Stub::Commit, CommitOf(bytes, bytes.size())).code(),
            StatusCode::kNotFound);
  mallory.Store(half);
  return mallory.Ask(&Blobs::Stub::Commit, CommitOf(half, 100));
}

absl::Status BlobLong(HostileWorld& world) {
  HostileClient mallory = world.Mallory();
  const std::string bytes = "longer than it was said to be";
  for (const size_t said : {size_t{4}, bytes.size() - 1, size_t{0}})
    EXPECT_EQ(mallory.Upload({Piece(HashOf(bytes), said, 0, bytes)}).code(),
              StatusCode::kInvalidArgument)
        << said;
  EXPECT_EQ(mallory.Upload({Piece(HashOf(bytes), UINT32_MAX, 0, bytes)}).code(),
            StatusCode::kInvalidArgument);
  mallory.Store(bytes);
  EXPECT_EQ(mallory.Ask(&Blobs::Stub::Commit, CommitOf(bytes, UINT64_MAX)).code(),
            StatusCode::kInvalidArgument);
  return mallory.Ask(&Blobs::Stub::Commit, CommitOf(bytes, 4));
}

absl::Status BlobRatioBomb(HostileWorld& world) {
  constexpr size_t kInflated = size_t{256} << 20;
  static const std::string bomb = GzipOfZeros(kInflated);
  EXPECT_LT(bomb.size() * 500, kInflated);
  const int64_t before = world.ResidentBytes();
  absl::Status status;
  for (const char* encoding : {"zstd", "deflate", "gzip"}) {
    auto raw = world.Raw();
    raw->Greet();
    const uint32_t stream =
        raw->Call(world.Authorized("Blobs/Upload", {{"grpc-encoding", encoding}}), {},
                  /*ends=*/false);
    // In frames of HTTP/2's least limit.
    const std::string message = GrpcMessage(bomb, /*compressed=*/true);
    for (size_t at = 0; at < message.size(); at += 16 << 10)
      raw->Send(Http2Frame(FrameType::kData, 0, stream, message.substr(at, 16 << 10)));
    status = world.replies().Note(raw->Await(stream));
    // gRPC knows the other two, and says that they are off. Of zstd it knows nothing: the bytes are
    // read as they are and are no piece (INVALID_ARGUMENT), unless it resets the stream before.
    if (std::string(encoding) == "zstd")
      EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument ||
                  status.code() == StatusCode::kUnavailable)
          << status;
    else
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << encoding << ": " << status;
  }
  // Less than a quarter of one bomb; connections of the cases beside it take some.
  EXPECT_LT(world.ResidentBytes() - before, static_cast<int64_t>(kInflated / 4));
  return status;
}

absl::Status BlobResumeWrongOffset(HostileWorld& world) {
  HostileClient mallory = world.Mallory();
  const std::string bytes = "0123456789", hash = HashOf(bytes);
  for (const size_t offset : {size_t{4}, size_t{6}, size_t{10}, size_t{UINT32_MAX}})
    EXPECT_EQ(
        mallory.Upload({Piece(hash, 10, 0, "01234"), Piece(hash, 10, offset, "56789")}).code(),
        StatusCode::kInvalidArgument)
        << offset;
  return mallory.Upload({Piece(hash, 10, 5, "56789")});
}

absl::Status BlobProbe(HostileWorld& world) {
  const std::string bytes = "weights of an honest account";
  HostileClient honest = world.ClientOf(world.honest().key(), "127.0.0.1");
  const std::string root = honest.Store(bytes), random = RandomBytes(32, 110);
  HostileClient mallory = world.Mallory();
  EXPECT_TRUE(IsMissing(mallory, HashOf(bytes)));
  const auto answer_of = [&](const std::string& hash, const std::string& chunk) {
    proto::ListChunksRequest list;
    list.set_root(hash);
    std::string nothing;
    proto::CommitRequest commit = CommitOf(bytes, bytes.size());
    commit.set_chunks(0, chunk);
    proto::StoreSetRequest set;
    set.set_name("mine");
    proto::Checkpoint::Entry& entry = *set.mutable_checkpoint()->add_entries();
    entry.set_blob_root(hash);
    entry.set_size_bytes(bytes.size());
    set.mutable_checkpoint()->set_file_name("mine");
    std::string answers;
    for (const absl::Status& status :
         {mallory.Ask(&Blobs::Stub::List, list), mallory.Download({chunk}, &nothing),
          mallory.Ask(&Store::Stub::Set, set)}) {
      EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
      answers += status.ToString() + "\n";
    }
    EXPECT_EQ(nothing, "");
    // The hash that was asked for is in the answer, and nothing else is different.
    for (const std::string& name : {wire::ToHex(hash), wire::ToHex(chunk)})
      for (size_t at; (at = answers.find(name)) != std::string::npos;)
        answers.replace(at, name.size(), "HASH");
    return answers;
  };
  EXPECT_EQ(answer_of(root, HashOf(bytes)), answer_of(random, random));
  // A session cannot take it by its name either.
  RawSession session(ChannelFrom(world.target(), "127.0.0.2"), world.mallory_key());
  session.Open();
  proto::ClientItem put = Item::Put(1, 1, "");
  put.mutable_put()->set_blob_root(root);
  put.mutable_put()->set_total_bytes(bytes.size());
  session.Send({put});
  return world.replies().Note(session.End());
}

absl::Status BlobProbeTimes(HostileWorld& world) {
  // Every pair is measured in a random order, so that whatever else the machine does meets both.
  // Samples of one distribution differ by more than the bound once in a million times; one that
  // touched a file for what another account stores would differ by far more. More samples before a
  // failure: a busy machine's pauses are not independent of each other.
  constexpr double kByChance = 1e-6;
  constexpr int kPairs = 2'000, kAttempts = 3;
  HostileClient honest = world.ClientOf(world.honest().key(), "127.0.0.1");
  const std::string bytes = RandomBytes(1000, 7);
  const std::string root = honest.Store(bytes);
  HostileClient mallory = world.Mallory();
  std::mt19937 random(110);
  struct Question {
    const char* name;
    std::string hash;  // of what the honest account has
    absl::Status (*ask)(HostileClient& client, const std::string& hash);
  };
  const Question questions[] = {
      {"a chunk", HashOf(bytes),
       [](HostileClient& client, const std::string& hash) {
         proto::MissingRequest request;
         request.add_chunks(hash);
         return client.Ask(&Blobs::Stub::Missing, request);
       }},
      {"a blob", root,
       [](HostileClient& client, const std::string& hash) {
         proto::ListChunksRequest request;
         request.set_root(hash);
         return client.Ask(&Blobs::Stub::List, request);
       }},
  };
  for (const Question& question : questions) {
    std::vector<double> theirs, nobodys;
    double distance = 1, bound = 0;
    for (int attempt = 0; attempt < kAttempts && distance > bound; ++attempt) {
      for (int i = 0; i < 2 * kPairs; ++i) {
        const bool first = (i % 2 == 0) == (random() % 2 == 0);
        const std::string hash =
            first ? question.hash : RandomBytes(32, static_cast<uint32_t>(random()));
        const auto begin = std::chrono::steady_clock::now();
        question.ask(mallory, hash).IgnoreError();
        (first ? theirs : nobodys)
            .push_back(
                std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                    .count());
      }
      distance = DistanceOf(theirs, nobodys);
      bound = DistanceBound(std::min(theirs.size(), nobodys.size()), kByChance);
    }
    EXPECT_LE(distance, bound) << question.name << ", after " << theirs.size() << " samples";
  }
  return absl::OkStatus();
}

absl::Status BlobNeverUploaded(HostileWorld& world) {
  RawSession session(ChannelFrom(world.target(), "127.0.0.2"), world.mallory_key());
  session.Open();
  proto::ClientItem put = Item::Put(1, 1, "");
  put.mutable_put()->set_blob_root(RandomBytes(32, 111));
  put.mutable_put()->set_total_bytes(9);
  session.Send({put});
  return world.replies().Note(session.End());
}

absl::Status BlobNameIsNoPath(HostileWorld& world) {
  HostileClient mallory = world.Mallory();
  proto::StoreSetRequest set;
  proto::Checkpoint::Entry& entry = *set.mutable_checkpoint()->add_entries();
  entry.set_blob_root(mallory.Store("escaped"));
  entry.set_size_bytes(7);
  set.mutable_checkpoint()->set_file_name("escaped");
  const std::string names[] = {"",           "..",
                               "../escaped", "a/../../escaped",
                               "/escaped",   "escaped/",
                               "a\\..\\b",   "~/escaped",
                               "a b",        "a\nb",
                               "%2e%2e/b",   std::string("a\0b", 3),
                               "\xff\xfe",   std::string(256, 'a'),
                               "C:escaped"};
  RawSession session(ChannelFrom(world.target(), "127.0.0.2"), world.mallory_key());
  session.Open();
  session.Send({Item::Put(1, 1, "x")});
  uint64_t seq = 2;
  absl::Status first;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    proto::StoreGetRequest get;
    proto::StoreRemoveRequest remove;
    proto::StorePinRequest pin;
    set.set_name(name);
    get.set_name(name);
    remove.set_name(name);
    pin.set_name(name);
    for (const absl::Status& status :
         {mallory.Ask(&Store::Stub::Set, set), mallory.Ask(&Store::Stub::Get, get),
          mallory.Ask(&Store::Stub::Remove, remove), mallory.Ask(&Store::Stub::Pin, pin)}) {
      if (first.ok()) first = status;
      // gRPC's parser refuses a string that is not UTF-8 before a service sees it.
      EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument || name[0] == '\xff') << status;
      EXPECT_FALSE(status.ok());
    }
    if (name[0] == '\xff') continue;
    proto::ClientItem save;
    save.set_seq(seq++);
    save.mutable_save()->set_name(name);
    save.mutable_save()->add_entries()->set_handle(1);
    save.mutable_save()->mutable_entries(0)->set_name("x");
    session.Send({save});
    RawSession::Answer answer;
    if (!session.Next(answer)) {
      ADD_FAILURE() << session.End();
      break;
    }
    world.replies().Note(answer.failed.message());
    EXPECT_EQ(answer.failed.code(), static_cast<uint32_t>(StatusCode::kInvalidArgument))
        << answer.failed.message();
  }
  for (const auto& at :
       std::filesystem::recursive_directory_iterator(world.cluster().folder().path()))
    EXPECT_EQ(at.path().string().find("escaped"), std::string::npos) << at.path();
  return first;
}

absl::Status BlobUploadRace(HostileWorld& world) {
  const std::string bytes = RandomBytes(2 << 20, 113), hash = HashOf(bytes);
  std::string wrong = bytes;
  wrong.back() ^= 1;
  const auto send = [&](const std::string& data) {
    HostileClient client = world.Mallory();
    std::vector<proto::BlobPiece> pieces;
    for (size_t at = 0; at < data.size(); at += 100'000)
      pieces.push_back(Piece(hash, data.size(), at, data.substr(at, 100'000)));
    return client.Upload(pieces);
  };
  std::vector<std::thread> senders;
  for (int i = 0; i < 8; ++i) {
    senders.emplace_back([&, lies = i % 4 == 3] {
      const absl::Status status = send(lies ? wrong : bytes);
      EXPECT_EQ(status.code(), lies ? StatusCode::kInvalidArgument : StatusCode::kOk) << status;
    });
  }
  for (std::thread& sender : senders) sender.join();
  HostileClient mallory = world.Mallory();
  EXPECT_TRUE(mallory.Ask(&Blobs::Stub::Commit, CommitOf(bytes, bytes.size())).ok());
  std::string back;
  const absl::Status status = mallory.Download({hash}, &back);
  EXPECT_TRUE(back == bytes);
  return status;
}

}  // namespace outboard::test
