// Names: what they hold is checked, stays while they stand, and is replaced at once; sessions
// protect what they need, and no longer.
#include "gateway/blobs/blob_retention.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "gateway/blobs/limits.h"
#include "tests/gateway/support.h"

namespace outboard::gateway {
namespace {

using absl::StatusCode;

constexpr TenantId kA{1}, kB{2};
constexpr SessionId kSession{1, 2};

class CatalogueTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(0); }
  void Open(uint64_t quota_bytes) {
    blob_retention_.reset();
    store_.reset();
    store_ = ValueOrDie(
        BlobStore::Open(temp_.File("blobs"), {.quota_bytes = quota_bytes, .sync_thread = false}));
    blob_retention_ = ValueOrDie(BlobRetention::Open(store_.get(), temp_.File("names.db"),
                                                     [this] { return WallTime{++now_ms_}; }));
  }
  wire::Hash Blob(const std::string& bytes, BlobOrigin origin = BlobOrigin::kClient) {
    return ValueOrDie(store_->Write(kA, bytes, origin));
  }
  static std::string Text(const wire::Hash& hash) { return std::string(wire::AsBytes(hash)); }
  // Arrays of u8: name and bytes. They are stored.
  proto::Checkpoint List(std::vector<std::pair<std::string, std::string>> arrays,
                         BlobOrigin origin = BlobOrigin::kClient) {
    proto::Checkpoint list;
    for (const auto& [name, bytes] : arrays) {
      auto& entry = *list.add_entries();
      entry.set_name(name);
      entry.set_dtype(3);
      entry.add_dims(bytes.size());
      entry.set_size_bytes(bytes.size());
      entry.set_blob_root(Text(Blob(bytes, origin)));
    }
    return list;
  }
  absl::Status Set(const std::string& name, const proto::Checkpoint& list) {
    std::optional<absl::Status> told;
    blob_retention_->Set(kA, name, list, [&](absl::Status status) { told = status; });
    while (store_->SyncSome()) continue;
    return told.value();
  }
  bool IsThere(const std::string& bytes) {
    return store_->Find(kA, wire::NameBlob(bytes).root).ok();
  }
  std::vector<std::string> Names(const std::string& prefix = "") {
    std::vector<std::string> names;
    for (const NameRow& row : ValueOrDie(blob_retention_->names().List(kA, prefix, "", 100)))
      names.push_back(row.name);
    return names;
  }

  test::TempDir temp_;
  int64_t now_ms_ = 0;
  std::unique_ptr<BlobStore> store_;
  std::unique_ptr<BlobRetention> blob_retention_;
};

TEST_F(CatalogueTest, ANameHoldsUntilItIsRemoved) {
  ASSERT_TRUE(Set("runs/a", List({{"b", "bias"}, {"w", "weights"}})).ok());
  ASSERT_TRUE(Set("runs/b", List({{"w", "weights"}})).ok());
  ASSERT_TRUE(Set("x", List({})).ok());
  for (int when = 0; when < 2; ++when) {
    if (when == 1) Open(0);  // all of it outlives a restart
    EXPECT_EQ(Names(), (std::vector<std::string>{"runs/a", "runs/b", "x"}));
    EXPECT_EQ(Names("runs/"), (std::vector<std::string>{"runs/a", "runs/b"}));
    const auto got = ValueOrDie(blob_retention_->Get(kA, "runs/a"));
    EXPECT_EQ(got.row.size_bytes, 11u);
    EXPECT_EQ(got.row.entries, 2u);
    ASSERT_EQ(got.checkpoint.entries_size(), 2);
    EXPECT_EQ(got.checkpoint.entries(1).blob_root(), Text(wire::NameBlob("weights").root));
  }
  EXPECT_EQ(blob_retention_->Get(kB, "runs/a").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(blob_retention_->Remove(kB, "runs/a").status().code(), StatusCode::kNotFound);
  EXPECT_GT(ValueOrDie(blob_retention_->Remove(kA, "runs/a")), 4u);  // and its list
  EXPECT_FALSE(IsThere("bias"));
  EXPECT_TRUE(IsThere("weights"));  // another name has it
  EXPECT_GT(ValueOrDie(blob_retention_->Remove(kA, "runs/b")), 7u);
  EXPECT_FALSE(IsThere("weights"));
  EXPECT_TRUE(blob_retention_->Remove(kA, "x").ok());
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 0u);
  EXPECT_EQ(blob_retention_->Remove(kA, "x").status().code(), StatusCode::kNotFound);
}

TEST_F(CatalogueTest, ReplacingIsAllOrNothing) {
  ASSERT_TRUE(Set("m", List({{"w", "old"}})).ok());
  std::optional<absl::Status> told;
  blob_retention_->Set(kA, "m", List({{"w", "new"}}), [&](absl::Status status) { told = status; });
  EXPECT_FALSE(told.has_value());  // not before it is on the disk
  EXPECT_EQ(ValueOrDie(blob_retention_->Get(kA, "m")).checkpoint.entries(0).blob_root(),
            Text(wire::NameBlob("old").root));
  while (store_->SyncSome()) continue;
  EXPECT_TRUE(told.value().ok());
  EXPECT_EQ(ValueOrDie(blob_retention_->Get(kA, "m")).checkpoint.entries(0).blob_root(),
            Text(wire::NameBlob("new").root));
  EXPECT_TRUE(IsThere("old"));  // a client's: it goes when its room is needed
  auto absent = List({{"w", "new"}});
  absent.mutable_entries(0)->set_blob_root(Text(wire::NameBlob("nev").root));
  EXPECT_EQ(Set("m", absent).code(), StatusCode::kNotFound);
  EXPECT_EQ(ValueOrDie(blob_retention_->Get(kA, "m")).checkpoint.entries(0).blob_root(),
            Text(wire::NameBlob("new").root));
}

TEST_F(CatalogueTest, WhoReadsANameThatIsReplacedGetsTheOneOrTheOther) {
  ASSERT_TRUE(Set("m", List({{"w", "0"}})).ok());
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) EXPECT_TRUE(blob_retention_->Get(kA, "m").ok());
  });
  for (int i = 1; i < 200; ++i) EXPECT_TRUE(Set("m", List({{"w", std::to_string(i)}})).ok());
  stop = true;
  reader.join();
}

TEST_F(CatalogueTest, NamesAreNoPaths) {
  const auto list = List({{"w", "x"}});
  for (const char* good : {"a", "A-b_c.d/e9", ".hidden", "a/.b"})
    EXPECT_TRUE(Set(good, list).ok()) << good;
  const std::string long_name(kStoreNameBytesMax + 1, 'n');
  for (const std::string& bad :
       {std::string(), std::string("../a"), std::string("a/../b"), std::string("/a"),
        std::string("a/"), std::string("a b"), std::string("a\n"), std::string("a\0b", 3),
        std::string("\xc3\xa9"), std::string("a\\b"), long_name}) {
    EXPECT_EQ(Set(bad, list).code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(blob_retention_->Get(kA, bad).status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(blob_retention_->Remove(kA, bad).status().code(), StatusCode::kInvalidArgument)
        << bad;
    EXPECT_EQ(blob_retention_->Pin(kA, bad, true).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(CatalogueTest, ListsAreChecked) {
  using Change = void (*)(proto::Checkpoint&);
  const struct {
    const char* what;
    Change change;
    StatusCode code;
  } cases[] = {
      {"order", [](auto& c) { c.mutable_entries()->SwapElements(0, 1); },
       StatusCode::kInvalidArgument},
      {"twice", [](auto& c) { c.mutable_entries(1)->set_name("a"); }, StatusCode::kInvalidArgument},
      {"no name", [](auto& c) { c.mutable_entries(0)->set_name(""); },
       StatusCode::kInvalidArgument},
      {"line", [](auto& c) { c.mutable_entries(0)->set_name("a\nb"); },
       StatusCode::kInvalidArgument},
      {"root", [](auto& c) { c.mutable_entries(0)->set_blob_root("r"); },
       StatusCode::kInvalidArgument},
      {"dtype", [](auto& c) { c.mutable_entries(0)->set_dtype(99); }, StatusCode::kInvalidArgument},
      {"void", [](auto& c) { c.mutable_entries(0)->set_dtype(0); }, StatusCode::kInvalidArgument},
      {"dims", [](auto& c) { c.mutable_entries(0)->add_dims(2); }, StatusCode::kInvalidArgument},
      {"product",
       [](auto& c) {
         for (int i = 0; i < 3; ++i) c.mutable_entries(0)->add_dims(uint64_t{1} << 40);
       },
       StatusCode::kInvalidArgument},
      {"rank",
       [](auto& c) {
         for (int i = 0; i < 20; ++i) c.mutable_entries(0)->add_dims(1);
       },
       StatusCode::kInvalidArgument},
      {"size",
       [](auto& c) {
         c.mutable_entries(0)->set_dims(0, 5);
         c.mutable_entries(0)->set_size_bytes(5);
       },
       StatusCode::kInvalidArgument},
      {"path",
       [](auto& c) {
         c.mutable_entries()->RemoveLast();
         c.set_file_name("../x");
       },
       StatusCode::kInvalidArgument},
      {"file of two", [](auto& c) { c.set_file_name("x"); }, StatusCode::kInvalidArgument},
      {"header", [](auto& c) { c.set_header_root("h"); }, StatusCode::kInvalidArgument},
      {"absent header", [](auto& c) { c.set_header_root(std::string(32, 'h')); },
       StatusCode::kNotFound},
      {"large", [](auto& c) { c.set_metadata(std::string(kCheckpointBytesMax, 'm')); },
       StatusCode::kResourceExhausted},
  };
  const auto good = List({{"a", "one"}, {"b", "two"}});
  for (const auto& c : cases) {
    proto::Checkpoint list = good;
    c.change(list);
    EXPECT_EQ(Set("n", list).code(), c.code) << c.what;
  }
  EXPECT_TRUE(Set("n", good).ok());
  proto::Checkpoint file = good;
  file.mutable_entries()->RemoveLast();
  file.mutable_entries(0)->clear_dtype();
  file.mutable_entries(0)->clear_dims();
  file.mutable_entries(0)->clear_name();
  file.set_file_name("notes.txt");
  EXPECT_TRUE(Set("file", file).ok());
}

TEST_F(CatalogueTest, PinnedNamesStayAndNamedBlobsAreNotEvicted) {
  Open(1000);
  ASSERT_TRUE(Set("p", List({{"w", std::string(400, 'p')}})).ok());
  ASSERT_TRUE(blob_retention_->Pin(kA, "p", true).ok());
  EXPECT_EQ(blob_retention_->Remove(kA, "p").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Set("p", List({{"w", "x"}})).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(blob_retention_->Pin(kA, "q", true).code(), StatusCode::kNotFound);
  Blob(std::string(300, '1'));
  Blob(std::string(300, '2'));  // the first goes
  EXPECT_FALSE(IsThere(std::string(300, '1')));
  EXPECT_TRUE(IsThere(std::string(400, 'p')));
  const auto usage = ValueOrDie(blob_retention_->UsageOf(kA));
  EXPECT_EQ(usage.quota_bytes, 1000u);
  EXPECT_EQ(usage.names, 1u);
  EXPECT_GE(usage.pinned_bytes, 400u);
  EXPECT_GE(usage.protected_bytes, usage.pinned_bytes);
  EXPECT_GE(usage.used_bytes, usage.protected_bytes + 300u);
  EXPECT_EQ(store_->Write(kA, std::string(700, '3'), BlobOrigin::kClient).status().code(),
            StatusCode::kResourceExhausted);
  ASSERT_TRUE(blob_retention_->Pin(kA, "p", false).ok());
  EXPECT_TRUE(blob_retention_->Remove(kA, "p").ok());
  EXPECT_TRUE(store_->Write(kA, std::string(700, '3'), BlobOrigin::kClient).ok());
}

// Counted as names come, go, are replaced and pinned, and again when the store is opened.
TEST_F(CatalogueTest, UsageIsCountedAlsoAfterARestart) {
  const std::string shared(100, 's'), own(50, 'o');
  ASSERT_TRUE(Set("a", List({{"w", shared}})).ok());
  ASSERT_TRUE(Set("b", List({{"v", own}, {"w", shared}})).ok());
  ASSERT_TRUE(Set("b", List({{"v", own}, {"w", shared}, {"x", own}})).ok());  // replaced
  ASSERT_TRUE(Set("c", List({{"w", own}})).ok());
  const auto size = [&](const char* name) {
    return store_->SizeOf(kA, ValueOrDie(blob_retention_->names().Find(kA, name)).manifest);
  };
  ASSERT_TRUE(blob_retention_->Pin(kA, "a", true).ok());
  ASSERT_TRUE(blob_retention_->Pin(kA, "b", true).ok());
  ASSERT_TRUE(blob_retention_->Pin(kA, "b", true).ok());
  const uint64_t pinned_bytes = 150 + size("a") + size("b");
  for (int opened = 0; opened < 2; ++opened) {
    const auto usage = ValueOrDie(blob_retention_->UsageOf(kA));
    EXPECT_EQ(usage.names, 3u);
    EXPECT_EQ(usage.pinned_bytes, pinned_bytes);
    EXPECT_EQ(usage.protected_bytes, pinned_bytes + size("c"));
    EXPECT_EQ(ValueOrDie(blob_retention_->UsageOf(kB)).names, 0u);
    Open(0);
  }
  ASSERT_TRUE(blob_retention_->Pin(kA, "b", false).ok());
  EXPECT_EQ(ValueOrDie(blob_retention_->UsageOf(kA)).pinned_bytes, 100 + size("a"));
  ASSERT_TRUE(blob_retention_->Pin(kA, "a", false).ok());
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(blob_retention_->Remove(kA, name).ok());
  const auto usage = ValueOrDie(blob_retention_->UsageOf(kA));
  EXPECT_EQ(usage.names + usage.pinned_bytes + usage.protected_bytes, 0u);
}

TEST_F(CatalogueTest, ADamagedListIsToldAndTheRestStays) {
  ASSERT_TRUE(Set("m", List({{"w", "weights"}})).ok());
  const auto row = ValueOrDie(blob_retention_->names().Find(kA, "m"));
  blob_retention_.reset();
  store_.reset();
  std::filesystem::remove(temp_.File("blobs/1/roots/" + wire::ToHex(row.manifest) + ".session"));
  Open(0);
  EXPECT_EQ(blob_retention_->Get(kA, "m").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(Names(), std::vector<std::string>{"m"});
  EXPECT_TRUE(blob_retention_->Remove(kA, "m").ok());
}

// ---- sessions -----------------------------------------------------------------------------------

class SessionsTest : public CatalogueTest {
 protected:
  void SetUp() override { Open(0); }
  void Open(uint64_t quota_bytes) {
    CatalogueTest::Open(quota_bytes);
    blob_retention_->BeginSession(kA, kSession);
  }
  // As a worker stores one: what it made is uploaded, the list last.
  wire::Hash Snapshot(const std::vector<std::string>& arrays) {
    proto::SessionSnapshot snapshot;
    for (const std::string& bytes : arrays) {
      const wire::Hash root = Blob(bytes, BlobOrigin::kSession);
      EXPECT_TRUE(blob_retention_->UploadedBy(kA, kSession, root).ok());
      snapshot.add_held()->set_blob_root(Text(root));
    }
    snapshot.add_held();  // poison
    const wire::Hash root = Blob(snapshot.SerializeAsString(), BlobOrigin::kSession);
    EXPECT_TRUE(blob_retention_->UploadedBy(kA, kSession, root).ok());
    return root;
  }
  // `row`: how writing the session's row goes.
  absl::Status Keep(const wire::Hash& manifest, uint64_t seq, absl::Status row = {}) {
    std::optional<absl::Status> told;
    blob_retention_->KeepSnapshot(
        kA, kSession, manifest, seq, [&](const BlobRetention::Done& written) { written(row); },
        [&](absl::Status status) { told = status; });
    while (store_->SyncSome()) continue;
    return told.value();
  }
};

TEST_F(SessionsTest, ASnapshotTakesThePlaceOfTheOneBefore) {
  ASSERT_TRUE(Keep(Snapshot({"w1", "data"}), 5).ok());
  EXPECT_TRUE(IsThere("w1"));
  const wire::Hash second = Snapshot({"w2", "data"});
  EXPECT_TRUE(IsThere("w1"));
  ASSERT_TRUE(Keep(second, 9).ok());
  EXPECT_FALSE(IsThere("w1"));
  EXPECT_TRUE(IsThere("w2"));
  EXPECT_TRUE(IsThere("data"));
  // A restart: what the rows name goes on, the rest is nobody's.
  Snapshot({"never named"});
  while (store_->SyncSome()) continue;
  Open(0);
  ASSERT_TRUE(blob_retention_->RestoreSnapshot(kA, kSession, {&second, 1}).ok());
  blob_retention_->RestoreDone();
  EXPECT_TRUE(IsThere("w2"));
  EXPECT_FALSE(IsThere("never named"));
  blob_retention_->EndSession(kSession);
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 0u);
}

TEST_F(SessionsTest, PartsAreASnapshotOnceAllOfOneItemAreThere) {
  const auto keep = [&](const wire::Hash& manifest, uint64_t seq) {
    std::optional<absl::Status> told;
    blob_retention_->KeepPart(
        kA, kSession, manifest, seq, [](const BlobRetention::Done& written) { written({}); },
        [&](absl::Status status) { told = status; });
    while (store_->SyncSome()) continue;
    return told.value();
  };
  const wire::Hash a5 = Snapshot({"a5", "both"}), b5 = Snapshot({"b5", "both"});
  ASSERT_TRUE(keep(a5, 5).ok() && keep(b5, 5).ok());
  ASSERT_TRUE(keep(a5, 5).ok()) << "an answer was lost";
  blob_retention_->PartsKept(kSession, 5, {a5, b5});
  const wire::Hash a9 = Snapshot({"a9"}), a12 = Snapshot({"a12"}), b12 = Snapshot({"b12"});
  ASSERT_TRUE(keep(a9, 9).ok());
  ASSERT_TRUE(keep(a12, 12).ok());
  EXPECT_TRUE(IsThere("a5") && IsThere("b5") && IsThere("both") && IsThere("a9"));
  ASSERT_TRUE(keep(b12, 12).ok());
  blob_retention_->PartsKept(kSession, 12, {a12, b12});
  for (const char* gone : {"a5", "b5", "both", "a9"}) EXPECT_FALSE(IsThere(gone)) << gone;
  const wire::Hash lost = Snapshot({"a15"}), other = Snapshot({"of a rank that went on"});
  ASSERT_TRUE(keep(lost, 15).ok());
  blob_retention_->ForgetParts(kSession, 12);
  EXPECT_TRUE(IsThere("a12") && IsThere("b12"));
  const wire::Hash a15 = Snapshot({"a15 again"}), b15 = Snapshot({"b15"});
  ASSERT_TRUE(keep(a15, 15).ok() && keep(b15, 15).ok() && keep(other, 15).ok());
  blob_retention_->PartsKept(kSession, 15, {a15, b15});
  EXPECT_TRUE(IsThere("a15 again") && IsThere("b15"));
  for (const char* gone : {"a12", "b12", "a15", "of a rank that went on"})
    EXPECT_FALSE(IsThere(gone)) << gone;
  blob_retention_->EndSession(kSession);
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 0u);
}

TEST_F(SessionsTest, TheSnapshotBeforeStaysUntilTheRowNamesTheNext) {
  ASSERT_TRUE(Keep(Snapshot({"w1"}), 5).ok());
  EXPECT_EQ(Keep(Snapshot({"w2"}), 9, absl::AbortedError("gone on elsewhere")).code(),
            StatusCode::kAborted);
  EXPECT_TRUE(IsThere("w1"));
  BlobRetention::Done written;
  absl::Status told = absl::UnknownError("");
  blob_retention_->KeepSnapshot(
      kA, kSession, Snapshot({"w3"}), 9,
      [&](BlobRetention::Done done) { written = std::move(done); },
      [&](absl::Status status) { told = status; });
  while (store_->SyncSome()) continue;
  ASSERT_NE(written, nullptr);
  EXPECT_TRUE(IsThere("w1"));
  written({});
  EXPECT_TRUE(told.ok()) << told;
  EXPECT_FALSE(IsThere("w1"));
  EXPECT_TRUE(IsThere("w3"));
}

TEST_F(SessionsTest, WhatIsNoSnapshotIsNotKept) {
  proto::SessionSnapshot good;
  good.add_held()->set_blob_root(std::string(32, 'h'));
  good.add_unacknowledged()->set_blob_root(std::string(32, 'k'));
  good.add_kernel_uses()->set_seq(3);
  good.set_seq(7);
  const std::string bytes = good.SerializeAsString();
  EXPECT_EQ(ValueOrDie(RootsOfSnapshot(bytes)).size(), 2u);
  EXPECT_TRUE(ValueOrDie(RootsOfSnapshot("")).empty());
  proto::SessionSnapshot empties;
  for (int i = 0; i < 100'000; ++i) empties.add_held();
  EXPECT_TRUE(ValueOrDie(RootsOfSnapshot(empties.SerializeAsString())).empty());
  proto::SessionSnapshot large;
  large.add_held()->mutable_dims()->Resize(static_cast<int>(kSnapshotEntryBytesMax), 1);
  proto::SessionSnapshot odd;
  odd.add_held()->set_blob_root("short");
  for (const std::string& bad : {large.SerializeAsString(), odd.SerializeAsString(), bytes + "\x12",
                                 bytes + std::string(1, '\0'), bytes + "\x12\x05x"})
    EXPECT_EQ(RootsOfSnapshot(bad).status().code(), StatusCode::kDataLoss);
}

TEST_F(SessionsTest, PutsStayUntilASnapshotHoldsThem) {
  Open(200);
  const std::string early(80, 'e'), late(80, 'l'), more(100, 'm');
  ASSERT_TRUE(blob_retention_->UseBlob(kA, kSession, Blob(early), 3, 0).ok());
  ASSERT_TRUE(blob_retention_->UseBlob(kA, kSession, Blob(late), 8, 0).ok());
  EXPECT_EQ(blob_retention_->UseBlob(kA, kSession, wire::NameBlob("?").root, 9, 0).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(store_->Write(kA, more, BlobOrigin::kClient).status().code(),
            StatusCode::kResourceExhausted);
  ASSERT_TRUE(Keep(Snapshot({}), 7).ok());  // holds the first, which was released by then
  EXPECT_TRUE(store_->Write(kA, more, BlobOrigin::kClient).ok());
  EXPECT_FALSE(IsThere(early));
  EXPECT_TRUE(IsThere(late));
}

// Where there are no snapshots: a Put that is applied is never sent again.
TEST_F(SessionsTest, PutsGoWhenTheyAreBehind) {
  Open(200);
  for (uint64_t seq = 1; seq <= 20; ++seq) {
    const auto root =
        store_->Write(kA, std::string(80, static_cast<char>('a' + seq)), BlobOrigin::kClient);
    ASSERT_TRUE(root.ok()) << root.status();
    for (int again = 0; again < 3; ++again)
      ASSERT_TRUE(blob_retention_->UseBlob(kA, kSession, *root, seq, seq - 1).ok());
    EXPECT_EQ(store_->UsageOf(kA).protected_bytes, 80u);
  }
}

TEST_F(SessionsTest, NothingIsProtectedForASessionThatHasEnded) {
  const wire::Hash root = Blob("data"), manifest = Snapshot({"w"});
  blob_retention_->EndSession(kSession);
  EXPECT_EQ(blob_retention_->UseBlob(kA, kSession, root, 1, 0).code(), StatusCode::kAborted);
  EXPECT_EQ(blob_retention_->UploadedBy(kA, kSession, root).code(), StatusCode::kAborted);
  EXPECT_FALSE(Keep(manifest, 5).ok());
  EXPECT_EQ(store_->UsageOf(kA).protected_bytes, 0u);
}

TEST_F(SessionsTest, WhatAnEndedSessionUploadedGoes) {
  const wire::Hash manifest = Snapshot({"w"});
  std::optional<absl::Status> told;
  blob_retention_->KeepSnapshot(
      kA, kSession, manifest, 5, [](const BlobRetention::Done& written) { written({}); },
      [&](absl::Status status) { told = status; });
  blob_retention_->EndSession(kSession);
  while (store_->SyncSome()) continue;
  EXPECT_EQ(told.value().code(), StatusCode::kAborted);
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 0u);
}

TEST_F(SessionsTest, ACheckpointIsNamedByTheWorkersWordAndOutlivesTheSession) {
  const auto list = List({{"w", "weights"}}, BlobOrigin::kSession);
  ASSERT_TRUE(blob_retention_->UploadedBy(kA, kSession, wire::NameBlob("weights").root).ok());
  const wire::Hash manifest = Blob(ManifestBytes(list), BlobOrigin::kSession);
  ASSERT_TRUE(blob_retention_->UploadedBy(kA, kSession, manifest).ok());
  std::optional<absl::Status> told, bad;
  blob_retention_->KeepCheckpoint(kA, kSession, "ckpt", manifest,
                                  [&](absl::Status status) { told = status; });
  EXPECT_FALSE(told.has_value());
  while (store_->SyncSome()) continue;
  EXPECT_TRUE(told.value().ok());
  blob_retention_->KeepCheckpoint(kA, kSession, "../x", manifest,
                                  [&](absl::Status status) { bad = status; });
  EXPECT_EQ(bad.value().code(), StatusCode::kInvalidArgument);
  blob_retention_->EndSession(kSession);
  EXPECT_EQ(ValueOrDie(blob_retention_->Get(kA, "ckpt")).row.entries, 1u);
  EXPECT_TRUE(IsThere("weights"));
  ASSERT_TRUE(blob_retention_->Remove(kA, "ckpt").ok());
  EXPECT_EQ(store_->UsageOf(kA).used_bytes, 0u);
}

}  // namespace
}  // namespace outboard::gateway
