// Blobs on disk: verified before they are visible, by tenant, within their room, and after damage.
#include "gateway/blobs/blob_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>

#include "tests/gateway/fault_disk.h"
#include "tests/gateway/support.h"
#include "wire/limits.h"

namespace outboard::gateway {
namespace {

using absl::StatusCode;

constexpr TenantId kA{1}, kB{2};

class BlobStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(0); }
  void Open(uint64_t quota_bytes) { Open({.quota_bytes = quota_bytes}); }
  void Open(BlobStoreOptions options) {
    store_.reset();
    options.disk = &disk_;
    options.sync_thread = false;
    options.unix_ms = [this] { return now_ms_; };
    store_ = ValueOrDie(BlobStore::Open(folder(), std::move(options)));
  }
  std::string folder() const { return temp_.File("blobs"); }

  absl::Status Write(TenantId tenant, const wire::Hash& hash, std::string_view bytes) {
    auto writer = store_->Begin(tenant, hash);
    if (!writer.ok()) return writer.status();
    for (size_t at = 0; at < bytes.size(); at += 100'000) {
      if (absl::Status status = (*writer)->Append(bytes.substr(at, 100'000)); !status.ok())
        return status;
    }
    return (*writer)->Finish();
  }
  // A committed blob of one chunk.
  wire::Hash Blob(TenantId tenant, const std::string& bytes,
                  BlobOrigin origin = BlobOrigin::kClient) {
    ++now_ms_;
    return ValueOrDie(store_->Write(tenant, bytes, origin));
  }
  bool IsThere(TenantId tenant, const wire::Hash& root) { return store_->Find(tenant, root).ok(); }
  void SyncAll() {
    while (store_->SyncSome()) continue;
  }
  size_t Files(const std::string& part = "") {
    size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder()))
      files += entry.is_regular_file() && entry.path().string().find(part) != std::string::npos;
    return files;
  }
  std::filesystem::path Only(const char* part) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
      if (entry.is_regular_file() && entry.path().string().find(part) != std::string::npos)
        return entry.path();
    }
    return {};
  }

  test::TempDir temp_;
  test::FaultDisk disk_;
  int64_t now_ms_ = 1'700'000'000'000;
  std::unique_ptr<BlobStore> store_;
};

TEST_F(BlobStoreTest, WritesCommitsAndReads) {
  std::string bytes(wire::kBlobChunkBytes + 5, 'q');
  wire::BlobName name = wire::NameBlob(bytes);
  ASSERT_EQ(name.chunks.size(), 2u);
  EXPECT_EQ(store_->Commit(kA, name.root, name.chunks, bytes.size()).code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->Missing(kA, name.chunks), name.chunks);
  ASSERT_TRUE(Write(kA, name.chunks[0], bytes.substr(0, wire::kBlobChunkBytes)).ok());
  EXPECT_EQ(store_->Missing(kA, name.chunks), std::vector{name.chunks[1]});
  ASSERT_TRUE(Write(kA, name.chunks[1], bytes.substr(wire::kBlobChunkBytes)).ok());
  ASSERT_TRUE(store_->Commit(kA, name.root, name.chunks, bytes.size()).ok());
  for (int when = 0; when < 3; ++when) {  // fresh, on disk, after a restart
    if (when == 1) SyncAll();
    if (when == 2) Open(0);
    auto blob = store_->Find(kA, name.root);
    ASSERT_TRUE(blob.ok());
    EXPECT_EQ(blob->size_bytes, bytes.size());
    EXPECT_EQ(*store_->ReadChunk(kA, blob->chunks[1]), bytes.substr(wire::kBlobChunkBytes));
    EXPECT_EQ(*store_->Read(kA, name.root, bytes.size()), bytes);
    EXPECT_EQ(store_->Read(kA, name.root, 10).status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(store_->UsageOf(kA).used_bytes, bytes.size());
  }
}

TEST_F(BlobStoreTest, WrongBytesAreNeverVisible) {
  wire::Hash hash = wire::HashChunk("right");
  EXPECT_EQ(Write(kA, hash, "wrong").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Write(kA, wire::HashChunk(""), "").code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(store_->Has(kA, hash));
  {
    auto half = store_->Begin(kA, hash).value();
    EXPECT_TRUE(half->Append("rig").ok());
  }
  EXPECT_EQ(Files(), 0u);
  EXPECT_EQ(Write(kA, hash, std::string(wire::kBlobChunkBytes + 1, 'x')).code(),
            StatusCode::kOutOfRange);
}

TEST_F(BlobStoreTest, ATenantSeesItsOwnOnly) {
  wire::BlobName name = wire::NameBlob("secret");
  ASSERT_TRUE(Write(kA, name.chunks[0], "secret").ok());
  ASSERT_TRUE(store_->Commit(kA, name.root, name.chunks, 6).ok());
  EXPECT_FALSE(store_->Has(kB, name.chunks[0]));
  EXPECT_EQ(store_->Find(kB, name.root).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->ReadChunk(kB, name.chunks[0]).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->Protect(kB, std::vector{name.root}).code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->Commit(kB, name.root, name.chunks, 6).code(), StatusCode::kNotFound);
}

// To B, what A has and what nobody has are one: the same answers, for the same work.
TEST_F(BlobStoreTest, WhatAnotherHasCostsTheSame) {
  const wire::BlobName of_a = wire::NameBlob("secret"), of_nobody = wire::NameBlob("sicret");
  Blob(kA, "secret");
  SyncAll();
  Blob(kB, "own");  // its folders are there
  const auto work = [&](const wire::BlobName& name, std::string_view bytes) {
    const int changes = disk_.changes, reads = disk_.reads;
    std::vector<int> seen;
    const auto note = [&](const absl::Status& status) {
      seen.push_back(static_cast<int>(status.code()));
      seen.push_back(disk_.changes - changes);
      seen.push_back(disk_.reads - reads);
    };
    seen.push_back(static_cast<int>(store_->Missing(kB, name.chunks).size()));
    note(absl::OkStatus());
    note(store_->Find(kB, name.root).status());
    note(store_->ReadChunk(kB, name.chunks[0]).status());
    note(store_->Commit(kB, name.root, name.chunks, bytes.size()));
    note(Write(kB, name.chunks[0], bytes));
    note(store_->Commit(kB, name.root, name.chunks, bytes.size()));
    seen.push_back(static_cast<int>(store_->UsageOf(kB).used_bytes));
    note(absl::OkStatus());
    store_->RemoveIdle(kB, std::vector{name.root});
    return seen;
  };
  EXPECT_EQ(work(of_a, "secret"), work(of_nobody, "sicret"));
  EXPECT_TRUE(IsThere(kA, of_a.root));
}

TEST_F(BlobStoreTest, RootsAreChecked) {
  wire::BlobName name = wire::NameBlob("abc");
  ASSERT_TRUE(Write(kA, name.chunks[0], "abc").ok());
  wire::Hash other = name.root;
  other[0] ^= 1;
  const wire::Hash longer = wire::MerkleRoot(name.chunks, 4);
  struct {
    const wire::Hash* root;
    uint64_t size;
    std::vector<wire::Hash> chunks;
  } bad[] = {
      {&other, 3, name.chunks},
      {&name.root, 4, name.chunks},  // size is part of the root
      {&longer, 4, name.chunks},     // its root, but the chunk is of another size
      {&name.root, 3, {name.chunks[0], name.chunks[0]}},
      {&name.root, 3, {}},
      {&name.root, uint64_t{1} << 62, name.chunks},
  };
  for (const auto& c : bad) {
    EXPECT_EQ(store_->Commit(kA, *c.root, c.chunks, c.size).code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(BlobStoreTest, DamageIsFoundAndCanBeMended) {
  wire::BlobName name = wire::NameBlob("precious");
  Blob(kA, "precious");
  SyncAll();
  for (const char* damaged : {"PRECIOUS", "prec", ""}) {
    Open(0);
    std::ofstream(Only("chunks")) << damaged;
    EXPECT_EQ(store_->ReadChunk(kA, name.chunks[0]).status().code(), StatusCode::kDataLoss);
    EXPECT_FALSE(store_->Has(kA, name.chunks[0]));
    EXPECT_EQ(store_->Find(kA, name.root).status().code(), StatusCode::kDataLoss);
    EXPECT_EQ(store_->Protect(kA, std::vector{name.root}).code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->UsageOf(kA).used_bytes, 0u);
    ASSERT_TRUE(Write(kA, name.chunks[0], "precious").ok());
    EXPECT_TRUE(store_->ReadChunk(kA, name.chunks[0]).ok());
    EXPECT_TRUE(IsThere(kA, name.root));
    SyncAll();
  }
  // Cut off while the gateway was down: the blob is absent, and to commit it asks for the chunk.
  std::ofstream(Only("chunks")) << "prec";
  Open(0);
  EXPECT_EQ(store_->Find(kA, name.root).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->Commit(kA, name.root, name.chunks, 8).code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->Missing(kA, name.chunks), name.chunks);
  Blob(kA, "precious");
  std::ofstream(Only("roots")) << "8 99999999999\nx";
  Open(0);
  EXPECT_FALSE(IsThere(kA, name.root));
  EXPECT_EQ(Files("roots"), 0u);
}

TEST_F(BlobStoreTest, WhatCannotBeReadNowStays) {
  const wire::Hash root = Blob(kA, "bytes");
  const wire::Hash chunk = wire::HashChunk("bytes");
  const absl::Status busy = absl::UnavailableError("too many open files");
  for (absl::Status* failing : {&disk_.open_status, &disk_.read_status}) {
    *failing = busy;
    EXPECT_EQ(store_->ReadChunk(kA, chunk).status(), busy);
    EXPECT_EQ(store_->Read(kA, root, 5).status(), busy);
    EXPECT_EQ(BlobStore::Open(folder(), {.disk = &disk_, .sync_thread = false}).status(), busy);
    *failing = absl::OkStatus();
    EXPECT_EQ(*store_->ReadChunk(kA, chunk), "bytes");
  }
  SyncAll();
  disk_.open_status = busy;
  EXPECT_EQ(BlobStore::Open(folder(), {.disk = &disk_, .sync_thread = false}).status(), busy);
  disk_.open_status = absl::OkStatus();
  Open(0);
  EXPECT_EQ(*store_->Read(kA, root, 5), "bytes");
}

TEST_F(BlobStoreTest, AFolderThatCannotBeListedEmptiesNothing) {
  const wire::Hash root = Blob(kA, "bytes");
  SyncAll();
  store_.reset();
  for (const char* part : {"/1/fresh", "/1/chunks", "/1/roots"}) {
    const std::string path = folder() + part;
    std::filesystem::rename(path, path + ".away");
    std::ofstream(path) << "no folder";
    EXPECT_EQ(BlobStore::Open(folder(), {.disk = &disk_, .sync_thread = false}).status().code(),
              StatusCode::kUnavailable);
    std::filesystem::remove(path);
    std::filesystem::rename(path + ".away", path);
  }
  Open(0);
  EXPECT_EQ(*store_->Read(kA, root, 5), "bytes");
}

TEST_F(BlobStoreTest, TheLongestUnusedGoesFirstAndProtectedOnesNever) {
  Open(1000);
  const std::string x(300, 'x'), y(300, 'y'), z(300, 'z'), w(300, 'w'), v(700, 'v');
  const wire::Hash rx = Blob(kA, x), ry = Blob(kA, y), rz = Blob(kA, z);
  Blob(kB, v);  // another's use is another's
  ++now_ms_;
  EXPECT_TRUE(IsThere(kA, rx));  // a use: now y is the oldest
  const wire::Hash rw = Blob(kA, w);
  EXPECT_FALSE(IsThere(kA, ry));
  EXPECT_TRUE(IsThere(kA, rz));
  ++now_ms_;
  EXPECT_TRUE(IsThere(kA, rx));
  SyncAll();
  Open(1000);  // the order of uses outlives a restart
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 900u);
  const wire::Hash protected_roots[] = {rw};
  ASSERT_TRUE(store_->Protect(kA, protected_roots).ok());
  EXPECT_EQ(store_->UsageOf(kA).protected_bytes, 300u);
  const wire::Hash rv = Blob(kA, v);
  EXPECT_TRUE(IsThere(kA, rw));
  EXPECT_TRUE(IsThere(kA, rv));
  EXPECT_FALSE(IsThere(kA, rx));
  ASSERT_TRUE(store_->Protect(kA, std::vector{rv}).ok());
  const absl::Status full = store_->Write(kA, "more", BlobOrigin::kClient).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("quota of 1000 bytes"), std::string::npos) << full;
  EXPECT_NE(full.message().find("1000 stored"), std::string::npos) << full;
  EXPECT_EQ(Files("tmp"), 0u);
  store_->Unprotect(kA, protected_roots);
  EXPECT_TRUE(store_->Write(kA, "more", BlobOrigin::kClient).ok());
  EXPECT_FALSE(IsThere(kA, rw));
  EXPECT_EQ(store_->UsageOf(kB).used_bytes, 700u);
}

// 30,000 chunks of 4 MiB in a list that all are the same one: 4 MiB stored, and a list of 960 KB.
TEST_F(BlobStoreTest, Lists_CountByTheirLength) {
  const std::string big(wire::kBlobChunkBytes, 'b');
  const wire::Hash chunk = wire::HashChunk(big);
  constexpr uint64_t kListBytes = 32 * 30'000;
  Open({.quota_bytes = wire::kBlobChunkBytes + 3 * kListBytes,
        .charges = {.object_bytes_min = 4096, .list_entry_bytes = 32}});
  ASSERT_TRUE(Write(kA, chunk, big).ok());
  const auto commit = [&](size_t count) {
    const std::vector<wire::Hash> chunks(count, chunk);
    const uint64_t bytes = count * wire::kBlobChunkBytes;
    const wire::Hash root = wire::MerkleRoot(chunks, bytes);
    absl::Status status = store_->Commit(kA, root, chunks, bytes);
    if (status.ok()) status = store_->Protect(kA, std::vector{root});
    return status;
  };
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(commit(30'000 - i).ok());
  EXPECT_EQ(commit(29'997).code(), StatusCode::kResourceExhausted);
  const BlobIndex::Usage usage = store_->UsageOf(kA);
  EXPECT_EQ(usage.used_bytes, wire::kBlobChunkBytes + 32 * (30'000 + 29'999 + 29'998));
  EXPECT_EQ(usage.protected_bytes, usage.used_bytes);
  EXPECT_EQ(Files("tmp"), 0u);
}

TEST_F(BlobStoreTest, TinyObjects_CountAsWhatTheyTake) {
  Open({.quota_bytes = 10 * 4096, .charges = {.object_bytes_min = 4096, .list_entry_bytes = 32}});
  std::vector<wire::Hash> roots;
  for (int i = 0; i < 5; ++i) {  // a chunk and a list each
    roots.push_back(Blob(kA, std::to_string(i)));
    ASSERT_TRUE(store_->Protect(kA, std::vector{roots.back()}).ok());
  }
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 10u * 4096);
  EXPECT_EQ(store_->Write(kA, "more", BlobOrigin::kClient).status().code(),
            StatusCode::kResourceExhausted);
  store_->Unprotect(kA, roots);  // one makes room
  EXPECT_TRUE(store_->Write(kA, "more", BlobOrigin::kClient).ok());
  EXPECT_EQ(std::count_if(roots.begin(), roots.end(),
                          [&](const wire::Hash& root) { return IsThere(kA, root); }),
            4);
}

TEST_F(BlobStoreTest, ObjectsAndListEntries_AreBoundedAlsoWithoutAQuotaOfBytes) {
  Open({.objects_max = 4, .list_entries_max = 100});
  const wire::Hash one = Blob(kA, "1"), two = Blob(kA, "2");
  ASSERT_TRUE(store_->Protect(kA, std::vector{one, two}).ok());
  const absl::Status full = store_->Write(kA, "3", BlobOrigin::kClient).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("4 objects"), std::string::npos) << full;
  EXPECT_TRUE(store_->Write(kB, "3", BlobOrigin::kClient).ok());
  Open({.list_entries_max = 2});
  const std::string big(wire::kBlobChunkBytes, 'b');
  EXPECT_TRUE(store_->Write(kB, big + "2", BlobOrigin::kClient).ok());  // what was there goes
  const absl::Status list = store_->Write(kB, big + big + "3", BlobOrigin::kClient).status();
  EXPECT_EQ(list.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(list.message().find("2 entries"), std::string::npos) << list;
}

TEST_F(BlobStoreTest, SharedChunksCountOnceAndStayWhileListed) {
  const std::string big(wire::kBlobChunkBytes, 'b');
  const wire::Hash one = Blob(kA, big), two = Blob(kA, big + "2");
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, wire::kBlobChunkBytes + 1);
  EXPECT_EQ(store_->RemoveIdle(kA, std::vector{two}), 1u);
  EXPECT_EQ(store_->RemoveIdle(kA, std::vector{two}), 0u);
  EXPECT_EQ(*store_->Read(kA, one, big.size()), big);
  EXPECT_EQ(store_->RemoveIdle(kA, std::vector{one}), wire::kBlobChunkBytes);
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 0u);
  EXPECT_EQ(Files(), 0u);
  // Twice in one blob.
  const wire::Hash twice = Blob(kA, big + big);
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, wire::kBlobChunkBytes);
  EXPECT_EQ(store_->RemoveIdle(kA, std::vector{twice}), wire::kBlobChunkBytes);
}

TEST_F(BlobStoreTest, ChunksOfAnUploadThatStoppedStayForAWhile) {
  Open(1000);
  const std::string loose(600, 'l'), other(600, 'o');
  ASSERT_TRUE(Write(kA, wire::HashChunk(loose), loose).ok());
  EXPECT_EQ(store_->Write(kA, other, BlobOrigin::kClient).status().code(),
            StatusCode::kResourceExhausted);
  now_ms_ += kLooseMs;
  EXPECT_TRUE(store_->Write(kA, other, BlobOrigin::kClient).ok());
  EXPECT_FALSE(store_->Has(kA, wire::HashChunk(loose)));
}

TEST_F(BlobStoreTest, TwoWhoSendTheSameAreOne) {
  const wire::Hash hash = wire::HashChunk("same");
  auto first = store_->Begin(kA, hash).value(), second = store_->Begin(kA, hash).value();
  ASSERT_TRUE(first->Append("same").ok());
  ASSERT_TRUE(second->Append("same").ok());
  EXPECT_TRUE(first->Finish().ok());
  EXPECT_TRUE(second->Finish().ok());
  EXPECT_EQ(Files(), 1u);
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 4u);
}

TEST_F(BlobStoreTest, WhatSessionsMadeGoesWithItsLastProtection) {
  const wire::Hash snapshot = Blob(kA, "weights", BlobOrigin::kSession);
  const wire::Hash shared = Blob(kA, "data set", BlobOrigin::kSession);
  Blob(kA, "data set");  // the client put it, too
  const std::vector<wire::Hash> both = {snapshot, shared, snapshot};
  ASSERT_TRUE(store_->Protect(kA, both).ok());
  store_->Unprotect(kA, std::vector{snapshot, shared});
  EXPECT_TRUE(IsThere(kA, snapshot));
  store_->Unprotect(kA, std::vector{snapshot});
  EXPECT_FALSE(IsThere(kA, snapshot));
  EXPECT_TRUE(IsThere(kA, shared));
  const wire::Hash left = Blob(kA, "left", BlobOrigin::kSession);
  const wire::Hash kept = Blob(kA, "kept", BlobOrigin::kSession);
  SyncAll();
  Open(0);
  ASSERT_TRUE(store_->Protect(kA, std::vector{kept}).ok());
  store_->RemoveIdleOfSessions();
  EXPECT_FALSE(IsThere(kA, left));
  EXPECT_TRUE(IsThere(kA, kept));
  EXPECT_TRUE(IsThere(kA, shared));
}

TEST_F(BlobStoreTest, DurableIsToldWhenItIsOnTheDisk) {
  const auto ask = [&](const wire::Hash& root, std::optional<absl::Status>& told) {
    store_->WhenDurable(kA, std::vector{root}, [&told](absl::Status status) { told = status; });
  };
  std::optional<absl::Status> first, absent, again, gone, failed;
  const wire::Hash root = Blob(kA, "a");
  ask(root, first);
  EXPECT_FALSE(first.has_value());
  SyncAll();
  EXPECT_TRUE(first.value().ok());
  ask(root, again);  // at once
  EXPECT_TRUE(again.value().ok());
  ask(wire::NameBlob("never").root, absent);
  EXPECT_EQ(absent.value().code(), StatusCode::kNotFound);
  const wire::Hash removed = Blob(kA, "b");
  ask(removed, gone);
  store_->RemoveIdle(kA, std::vector{removed});
  SyncAll();
  EXPECT_EQ(gone.value().code(), StatusCode::kNotFound);
  // A disk that cannot: nothing is called durable, and the chunk is asked for again.
  const wire::BlobName lost = wire::NameBlob("c");
  Blob(kA, "c");
  ask(lost.root, failed);
  disk_.sync_status = absl::UnavailableError("EIO");
  SyncAll();
  EXPECT_FALSE(failed.value().ok());
  EXPECT_FALSE(store_->Has(kA, lost.chunks[0]));
}

TEST_F(BlobStoreTest, AThreadSyncsByItself) {
  store_.reset();
  auto store = ValueOrDie(BlobStore::Open(folder()));
  const wire::Hash root = ValueOrDie(store->Write(kA, "bytes", BlobOrigin::kClient));
  std::promise<absl::Status> told;
  store->WhenDurable(kA, std::vector{root}, [&](absl::Status status) { told.set_value(status); });
  EXPECT_TRUE(told.get_future().get().ok());
  EXPECT_EQ(Files("/chunks/"), 1u);
  EXPECT_EQ(Files("/fresh/"), 0u);
}

// Whose fault it is that something cannot be stored.
TEST_F(BlobStoreTest, AFullDisk_IsNoQuota) {
  Disk disk;
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const absl::Status status = disk.Write(full, 0, "bytes");
  close(full);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(IsOfDisk(status));
  EXPECT_FALSE(IsOfDisk(absl::OkStatus()));
  EXPECT_FALSE(IsOfDisk(absl::ResourceExhaustedError("the quota of 5 bytes is used up")));
  EXPECT_FALSE(IsOfDisk(disk.Open(folder() + "/nothing").status()));
}

TEST(Merkle, NamesDifferByDomainSizeAndOrder) {
  wire::Hash a = wire::HashChunk("a"), b = wire::HashChunk("b");
  EXPECT_NE(a, Sha256("a"));
  const wire::Hash ab[] = {a, b}, ba[] = {b, a}, one[] = {a};
  EXPECT_NE(wire::MerkleRoot(ab, 2), wire::MerkleRoot(ba, 2));
  EXPECT_NE(wire::MerkleRoot(ab, 2), wire::MerkleRoot(ab, 3));
  EXPECT_NE(wire::MerkleRoot(one, 1), a);
  EXPECT_EQ(wire::NameBlob("").root, wire::MerkleRoot({}, 0));
  // No chunk has the name of a pair.
  std::string pair = std::string(wire::AsBytes(a)) + std::string(wire::AsBytes(b));
  EXPECT_NE(wire::HashChunk(pair), Sha256(std::string(1, '\1') + pair));
}

// A session that ends leaves the values that it stored, which are all removed: not before anybody
// else can call the store.
TEST_F(BlobStoreTest, ManyThatAreRemoved_LetOthersCallBetween) {
  std::vector<wire::Hash> roots;
  for (int i = 0; i < 400; ++i) {
    roots.push_back(Blob(kA, "value " + std::to_string(i), BlobOrigin::kSession));
    ASSERT_TRUE(store_->Protect(kA, std::span(&roots.back(), 1)).ok());
  }
  std::promise<void> begins;
  std::future<int> other;  // how many had gone when it had its answer
  disk_.on_remove = [&] {
    if (other.valid()) return;
    other = std::async(std::launch::async, [&] {
      begins.set_value();
      store_->UsageOf(kB);
      return disk_.removed.load();
    });
    begins.get_future().wait();
  };
  const int before = disk_.removed;
  store_->Unprotect(kA, roots);
  EXPECT_EQ(disk_.removed - before, 800) << "a list and a chunk each";
  EXPECT_LT(other.get() - before, 800);
}

// Nor the files of one blob, before any of which the same chunk may come again.
TEST_F(BlobStoreTest, ABlobOfManyChunks_LetsOthersCallWhileItGoes_AndUploadThemAgain) {
  constexpr size_t kChunks = 600;
  const std::string last = "the last one";
  Blob(kA, "makes the folders");
  store_.reset();
  std::vector<wire::Hash> chunks;
  for (size_t i = 0; i + 1 < kChunks; ++i) {  // whose bytes nobody reads
    chunks.push_back(Sha256("chunk " + std::to_string(i)));
    const std::string path = folder() + "/1/chunks/" + wire::ToHex(chunks.back());
    std::ofstream(path).close();
    std::filesystem::resize_file(path, wire::kBlobChunkBytes);
  }
  Open(0);
  chunks.push_back(wire::HashChunk(last));
  ASSERT_TRUE(Write(kA, chunks.back(), last).ok());
  const uint64_t size_bytes = (kChunks - 1) * wire::kBlobChunkBytes + last.size();
  const wire::Hash root = wire::MerkleRoot(chunks, size_bytes);
  ASSERT_TRUE(store_->Commit(kA, root, chunks, size_bytes, BlobOrigin::kSession).ok());
  ASSERT_TRUE(store_->Protect(kA, std::span(&root, 1)).ok());
  const int before = disk_.removed;
  std::promise<void> begins;
  std::future<int> other;  // how many had gone when the chunk was there again
  disk_.on_remove = [&] {
    if (other.valid()) return;
    other = std::async(std::launch::async, [&] {
      begins.set_value();
      EXPECT_FALSE(store_->Has(kA, chunks.back())) << "it is gone, but for its file";
      const absl::Status written = Write(kA, chunks.back(), last);
      EXPECT_TRUE(written.ok()) << written;
      return disk_.removed.load() - before;
    });
    begins.get_future().wait();
  };
  store_->Unprotect(kA, std::span(&root, 1));
  EXPECT_LT(other.get(), static_cast<int>(kChunks));
  EXPECT_FALSE(IsThere(kA, root));
  EXPECT_EQ(ValueOrDie(store_->ReadChunk(kA, chunks.back())), last);
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, std::string("makes the folders").size() + last.size());
}

}  // namespace
}  // namespace outboard::gateway
