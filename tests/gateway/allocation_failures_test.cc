// What is left behind where memory ends: each operation is tried with its first allocation
// failing, then with its second, and so on until it succeeds. What was counted must be taken back.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/fair_queue.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/admission/graph_admission.h"
#include "gateway/base/limits.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/blobs/disk.h"
#include "gateway/groups/graph_sharder.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/ledger_writer.h"
#include "gateway/streams/stream.h"
#include "proto/cloud.pb.h"
#include "storage/sqlite.h"
#include "tests/gateway/core_driver_world.h"
#include "tests/gateway/support.h"

namespace {
// Allocations of this thread until one fails; negative: none does.
thread_local int allocations_left = -1;
thread_local bool has_no_memory = false;  // this thread
}  // namespace

void* operator new(size_t bytes) {
  if (has_no_memory) throw std::bad_alloc();
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* const at = std::malloc(bytes);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace outboard::gateway {
namespace {

constexpr TenantId kTenant{1};
constexpr int kAllocationsMax = 300;  // of one operation

// True: `work` needed its allocation number `failing`, counted from 0, and threw without it.
bool Throws(int failing, const std::function<void()>& work) {
  allocations_left = failing;
  bool threw = false;
  try {
    work();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  allocations_left = -1;
  return threw;
}

// How often `work` threw, until it had all that it needs. Gets the number of the try.
int TimesThrown(const std::function<void(int)>& work) {
  for (int failing = 0; failing < kAllocationsMax; ++failing)
    if (!Throws(failing, [&] { work(failing); })) return failing;
  ADD_FAILURE() << "it never succeeds";
  return 0;
}

TEST(AllocationFailures, OfAVerdict_LeaveNoneThatIsNeverForgotten) {
  GraphAdmission admission;
  const auto graph_of = [](int i) { return "no graph, number " + std::to_string(i); };
  const auto check = [&](const std::string& bytes) {
    const wire::Hash hash = Sha256(bytes);
    admission.Check(kTenant, std::string(wire::AsBytes(hash)), bytes).IgnoreError();
  };
  const int thrown = TimesThrown([&](int i) { check(graph_of(i)); });
  EXPECT_GT(thrown, 3);
  for (int i = 0; i <= static_cast<int>(kGraphVerdictsMax); ++i)
    check(graph_of(kAllocationsMax + i));
  for (int i = 0; i < thrown; ++i)
    EXPECT_FALSE(admission.Knows(kTenant, std::string(wire::AsBytes(Sha256(graph_of(i)))))) << i;
}

TEST(AllocationFailures, OfAWrittenGraph_LeaveNoneThatIsNeverForgotten) {
  size_t bytes = 1;
  GraphSharder sharder(
      [&](const GraphUse& use, std::string_view) -> absl::StatusOr<WrittenGraph> {
        return WrittenGraph{.id = use.graph_id, .bytes = std::string(bytes, 'x')};
      },
      nullptr);
  const auto use_of = [](int i) {
    return GraphUse{.graph_id = "a graph whose number is " + std::to_string(i),
                    .mesh = shard::Mesh{{2}}};
  };
  // An exception of the writer becomes the graph's error. This test looks at what happens after it.
  const int thrown = TimesThrown([&](int i) {
    if (const auto written = sharder.Write(kTenant, use_of(i), ""); !written->status.ok())
      throw std::bad_alloc();
  });
  EXPECT_GT(thrown, 3);
  bytes = kWrittenGraphsBytesMax / 2;
  for (int i = 0; i < 3; ++i) sharder.Write(kTenant, use_of(kAllocationsMax + i), "");
  for (int i = 0; i < thrown; ++i) EXPECT_EQ(sharder.Find(kTenant, use_of(i)), nullptr) << i;
}

TEST(AllocationFailures, OfAFrameThatIsQueued_CountNoBytes) {
  proto::ClientFrame frame;
  for (int i = 0; i < 5; ++i) frame.add_items()->set_seq(1000 + i);
  wire::FrameQueue<proto::ClientFrame> frames;
  PlainQueue<proto::ClientFrame> messages;
  const auto push = [&](auto& queue) {
    return TimesThrown([&](int i) {
      proto::ClientFrame copy = frame;
      copy.set_epoch(i);  // else it is merged
      queue.Push(std::move(copy));
    });
  };
  EXPECT_GT(push(frames), 3);
  EXPECT_GT(push(messages), 3);
  while (!frames.empty()) frames.Pop();
  while (!messages.empty()) messages.Pop();
  EXPECT_EQ(frames.bytes(), 0u);
  EXPECT_EQ(messages.bytes(), 0u);
}

TEST(AllocationFailures, OfAPutByBlob_ProtectNothing) {
  constexpr SessionId kSession{1, 2};
  test::TempDir temp;
  const auto store = ValueOrDie(BlobStore::Open(temp.File("blobs"), {.sync_thread = false}));
  const auto retention = ValueOrDie(BlobRetention::Open(store.get(), temp.File("names.db"),
                                                        [] { return WallTime{1}; }));
  retention->BeginSession(kTenant, kSession);
  const auto blob = [&](int i) {
    return ValueOrDie(store->Write(kTenant, "blob " + std::to_string(i), BlobOrigin::kClient));
  };
  for (int i = 0; i < kAllocationsMax; ++i) blob(i);
  uint64_t seq = 0;
  const auto put = [&](int i, uint64_t behind_seq) {
    return retention->UseBlob(kTenant, kSession, wire::NameBlob("blob " + std::to_string(i)).root,
                              ++seq, behind_seq);
  };
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(put(i, 0).ok());
  const int thrown = TimesThrown([&](int i) { put(10 + i, /*behind_seq=*/3).IgnoreError(); });
  EXPECT_GT(thrown, 1);
  // What is taken back takes no memory that may not be there: in part, it would stay for ever.
  EXPECT_GT(TimesThrown([&](int) {
              wire::Hash uploaded = wire::NameBlob("blob 5").root;
              retention->UploadedBy(kTenant, kSession, uploaded).IgnoreError();
            }),
            0);
  EXPECT_GT(store->UsageOf(kTenant).protected_bytes, 0u);
  EXPECT_EQ(TimesThrown([&](int) { retention->EndSession(kSession); }), 0);
  EXPECT_EQ(store->UsageOf(kTenant).protected_bytes, 0u);
}

// Counted as a walk counts it, whatever failed on the way; and nothing waits for ever.
TEST(AllocationFailures, OfBlobsThatComeAndGo_CountNothingTwice) {
  constexpr SessionId kSession{1, 2};
  test::TempDir temp;
  const auto store = ValueOrDie(BlobStore::Open(temp.File("blobs"), {.sync_thread = false}));
  const auto retention = ValueOrDie(BlobRetention::Open(store.get(), temp.File("names.db"),
                                                        [] { return WallTime{1}; }));
  retention->BeginSession(kTenant, kSession);
  int stored = 0;
  EXPECT_GT(TimesThrown([&](int i) {
              const std::string bytes = "value " + std::to_string(i);
              const auto root = store->Write(kTenant, bytes, BlobOrigin::kSession);
              if (!root.ok()) throw std::bad_alloc();
              ++stored;
            }),
            10);
  EXPECT_EQ(stored, 1);
  for (int failing = 0; failing < 100; ++failing) {
    const wire::Hash root = ValueOrDie(
        store->Write(kTenant, "to be removed " + std::to_string(failing), BlobOrigin::kSession));
    ASSERT_TRUE(store->Protect(kTenant, std::span(&root, 1)).ok());
    EXPECT_FALSE(Throws(failing, [&] { store->Unprotect(kTenant, std::span(&root, 1)); }))
        << failing;
    EXPECT_EQ(store->UsageOf(kTenant).protected_bytes, 0u) << failing;
  }
  store->RemoveIdleOfSessions();
  // What had no memory on its way in may be there as chunks of no blob.
  while (store->SyncSome()) continue;
  const BlobIndex::Usage usage = store->UsageOf(kTenant);
  EXPECT_EQ(usage, store->RecountUsage(kTenant));
  uint64_t files = 0, bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(temp.File("blobs"))) {
    if (!file.is_regular_file()) continue;
    ++files;
    if (file.path().parent_path().filename() != "roots") bytes += file.file_size();
  }
  EXPECT_EQ(files, usage.objects) << "no file but those that the index has";
  EXPECT_EQ(bytes, usage.used_bytes);
}

// The row says whether a name is pinned, and what is counted agrees with it.
TEST(AllocationFailures, OfAPin_CountWhatTheRowSays) {
  test::TempDir temp;
  const auto store = ValueOrDie(BlobStore::Open(temp.File("blobs"), {.sync_thread = false}));
  const auto retention = ValueOrDie(
      BlobRetention::Open(store.get(), temp.File("names.db"), [] { return WallTime{1}; }));
  proto::Checkpoint list;
  for (int i = 0; i < 3; ++i) {
    auto& entry = *list.add_entries();
    entry.set_name("array " + std::to_string(i));
    entry.set_dtype(3);
    entry.add_dims(100);
    entry.set_size_bytes(100);
    const std::string bytes(100, static_cast<char>('a' + i));
    entry.set_blob_root(
        std::string(wire::AsBytes(ValueOrDie(store->Write(kTenant, bytes, BlobOrigin::kClient)))));
  }
  retention->Set(kTenant, "name", list, [](const absl::Status& set) { OB_CHECK_OK(set); });
  while (store->SyncSome()) continue;
  const auto pinned_bytes = [&] { return ValueOrDie(retention->UsageOf(kTenant)).pinned_bytes; };
  uint64_t all = 0;
  for (const bool pinned : {true, false, true}) {
    const int thrown = TimesThrown([&](int) {
      const absl::Status done = retention->Pin(kTenant, "name", pinned);
      if (absl::IsResourceExhausted(done)) throw std::bad_alloc();
      OB_CHECK_OK(done);
    });
    EXPECT_GT(thrown, 3) << pinned;
    ASSERT_EQ(ValueOrDie(retention->Get(kTenant, "name")).row.pinned, pinned);
    if (all == 0) all = pinned_bytes();
    EXPECT_GT(all, 300u);
    EXPECT_EQ(pinned_bytes(), pinned ? all : 0u);
  }
  // As after the next start, which counts anew.
  const auto again = ValueOrDie(
      BlobRetention::Open(store.get(), temp.File("names.db"), [] { return WallTime{1}; }));
  EXPECT_EQ(ValueOrDie(again->UsageOf(kTenant)).pinned_bytes, all);
}

// A job that stays behind without a turn would never run, and never let go of what it owes.
TEST(AllocationFailures, OfAJobThatIsPosted_LeaveNothingOfIt) {
  FairQueue queue({.threads = 1});
  const auto owes = std::make_shared<std::atomic<int>>(0);  // jobs that have run
  int posted = 0;
  const int thrown = TimesThrown([&](int account) {
    std::function<void()> job = [owes] { ++*owes; };
    queue.Post(account, std::move(job));
    ++posted;
  });
  EXPECT_GT(thrown, 2);
  EXPECT_EQ(posted, 1);
  EXPECT_LE(queue.accounts(), 1u) << "accounts whose jobs were refused are remembered";
  queue.Stop();
  EXPECT_EQ(*owes, 1) << "jobs that were refused have run";
  EXPECT_EQ(owes.use_count(), 1);
}

// A disk that knows which folders have names that a power cut would take.
class FoldersDisk final : public Disk {
 public:
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const int left = std::exchange(allocations_left, -1);
    unsynced.insert(std::filesystem::path(to).parent_path().filename().string());
    absl::Status status = Disk::Rename(from, to);
    allocations_left = left;
    return status;
  }
  absl::Status Sync(const std::string& path) override {
    const int left = std::exchange(allocations_left, -1);
    unsynced.erase(std::filesystem::path(path).filename().string());
    absl::Status status = Disk::Sync(path);
    allocations_left = left;
    return status;
  }
  std::set<std::string> unsynced;
};

TEST(AllocationFailures, OfASync_ForgetNoFolder) {
  test::TempDir temp;
  FoldersDisk disk;
  const auto store =
      ValueOrDie(BlobStore::Open(temp.File("blobs"), {.disk = &disk, .sync_thread = false}));
  for (int failing = 0;; ++failing) {
    ASSERT_LT(failing, kAllocationsMax);
    const wire::Hash root = ValueOrDie(
        store->Write(kTenant, "value " + std::to_string(failing), BlobOrigin::kClient));
    std::optional<absl::Status> told;
    store->WhenDurable(kTenant, std::span(&root, 1), [&](absl::Status status) {
      told = std::move(status);
      for (const char* const folder : {"chunks", "roots"})
        EXPECT_FALSE(disk.unsynced.contains(folder)) << folder << ", " << failing;
    });
    allocations_left = failing;
    try {
      store->SyncSome();
    } catch (const std::bad_alloc&) {
    }
    const bool failed = allocations_left < 0;
    allocations_left = -1;
    while (store->SyncSome()) continue;
    ASSERT_TRUE(told.has_value()) << failing;
    EXPECT_TRUE(told->ok()) << *told;
    if (!failed) break;
  }
}

TEST(AllocationFailures, OfTheEndOfAStore_LeaveNobodyWaiting) {
  test::TempDir temp;
  auto store = ValueOrDie(BlobStore::Open(temp.File("blobs"), {.sync_thread = false}));
  const wire::Hash root = ValueOrDie(store->Write(kTenant, "value", BlobOrigin::kClient));
  std::optional<absl::Status> told;
  store->WhenDurable(kTenant, std::span(&root, 1),
                     [&](absl::Status status) { told = std::move(status); });
  has_no_memory = true;
  store.reset();
  has_no_memory = false;
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->code(), absl::StatusCode::kResourceExhausted) << *told;
}

// A hold is on the disk, and whoever asked for it was told, when there is no memory left, not even
// to say so.
TEST(AllocationFailures, OfWhoIsToldOfAWrite_TellNobodyTwice) {
  test::TempDir temp;
  const std::string path = temp.File("books.db");
  const auto ledger = ValueOrDie(Ledger::Open(path));
  const auto rows = ValueOrDie(SessionRows::Open(path));
  LedgerWriter writer(ledger.get(), rows.get());
  std::promise<absl::StatusCode> given_up;
  writer.OnGivenUp([&](const absl::Status& why) {
    has_no_memory = false;
    given_up.set_value(why.code());
  });
  std::atomic<int> told = 0;
  writer.Hold({.lease = test::DeviceOf(1).lease,
               .tenant = kTenant,
               .key_id = "0123456789abcdef",
               .prices_per_hour = {kDefaultPricePerHour},
               .to_ms = 60'000},
              [&](const HoldAnswer&) {
                ++told;
                has_no_memory = true;
                throw std::bad_alloc();
              });
  EXPECT_EQ(given_up.get_future().get(), absl::StatusCode::kInternal);
  writer.Stop();
  EXPECT_EQ(told, 1);
}

// The next write would find a transaction that nobody ends.
TEST(AllocationFailures, OfATransaction_LeaveNoneBegun) {
  test::TempDir temp;
  const auto db = ValueOrDie(storage::Database::Open(temp.File("db")));
  OB_CHECK_OK(db->Execute("CREATE TABLE t(x INTEGER)"));
  const auto write = [&] {
    OB_CHECK_OK(db->Transaction(storage::Database::Mode::kWrite, [&] {
      const absl::Status written = db->Execute("INSERT INTO t VALUES (1)");
      const std::string text(1000, 'x');
      return written;
    }));
  };
  EXPECT_GT(TimesThrown([&](int) { write(); }), 0);
  auto count = ValueOrDie(db->Prepare("SELECT COUNT(*) FROM t"));
  ASSERT_TRUE(ValueOrDie(count.Step()));
  EXPECT_EQ(count.Int(0), 1);
}

// As a stream of gRPC's, which writes one message at a time.
class Reactor {
 public:
  virtual ~Reactor() = default;
  virtual void OnWriteDone(bool ok) = 0;
  virtual void OnCancel() = 0;
  virtual void OnDone() = 0;
  void StartWrite(const proto::ServerFrame*) { ++written; }
  void Finish(const grpc::Status&) { finished = true; }
  int written = 0;
  bool finished = false;
};
class Sends final : public SendingStream<Reactor, proto::ServerFrame> {
 private:
  void OnGone() override {}
};

// Else it would wait for the end of a write that never began.
TEST(AllocationFailures, OfAMessage_LeaveNoWriteThatNeverEnds) {
  proto::ServerFrame frame;
  frame.add_items()->mutable_done();
  for (int failing = 0;; ++failing) {
    Sends stream;
    const bool threw = Throws(failing, [&] { stream.Send(frame); });
    stream.End(absl::OkStatus());
    EXPECT_EQ(stream.finished, threw) << failing;
    if (!threw) break;
  }
}

class GroupOfTwo : public CoreDriverTest {
 public:
  GroupOfTwo() {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_name("two");
    reg.set_identity(std::string(kWorkerIdentityBytes, 'b'));
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    for (int i = 0; i < 2; ++i) reg.add_devices()->set_hardware_class("large");
    reg.set_has_collectives(true);
    reg.set_serves_groups(true);
    two_port_.OnEvent(event);
    proto::ClientFrame frame = OpenFrame();
    frame.mutable_items(0)->mutable_open()->set_devices(2);
    Open(client_port_, std::move(frame));
    RunAll(writes_.jobs);
    const proto::Assign& assign = *two_.assign();
    for (uint32_t rank = 0; rank < 2; ++rank)
      OB_CHECK_OK(ports_[rank].Attach(*SessionId::FromBytes(assign.session_id()),
                                      *TokenFromBytes(assign.attach_token()), rank));
    RunAll(writes_.jobs);
    for (ExecutorPort& port : ports_) {
      proto::ServerFrame opened;
      opened.set_epoch(1);
      opened.add_items()->mutable_opened();
      port.OnFrame(std::move(opened));
    }
    OB_CHECK(client_.sent.size() == 1);
  }
  ~GroupOfTwo() override {
    client_port_.OnGone();
    for (ExecutorPort& port : ports_) port.Leave();
  }
  void TestBody() override {}
  using CoreDriverTest::client_, CoreDriverTest::client_port_, CoreDriverTest::writes_;

  WorkerEnd two_;
  WorkerPort two_port_{&driver_, &two_};
  ExecutorEnd ends_[2];
  ExecutorPort ports_[2] = {{&driver_, &ends_[0]}, {&driver_, &ends_[1]}};
};

// On a thread of gRPC's: an exception that leaves it ends the gateway.
TEST(AllocationFailures, OfALightFrameOfAGroup_EndItsSessionAndCostNothing) {
  for (int failing = 0;; ++failing) {
    ASSERT_LT(failing, kAllocationsMax);
    GroupOfTwo group;
    proto::ClientFrame frame;
    frame.set_epoch(1);
    frame.add_items()->set_seq(1);
    frame.mutable_items(0)->mutable_put()->set_handle(1);
    allocations_left = failing;
    EXPECT_NO_THROW(group.client_port_.OnFrame(std::move(frame))) << failing;
    const bool failed = allocations_left < 0;
    allocations_left = -1;
    RunAll(group.writes_.jobs);
    EXPECT_EQ(group.client_.ends.size(), failed ? 1u : 0u) << failing;
    if (!failed) break;
    ASSERT_FALSE(group.writes_.lease_ends.empty());
    EXPECT_EQ(group.writes_.lease_ends.back(), LeaseEnd::kGatewayFault);
    EXPECT_EQ(group.writes_.rows.back().state, SessionRowState::kLost);
  }
}

TEST(AllocationFailures, OfWhatAnExecutorSays_EndItsSession) {
  for (int failing = 0;; ++failing) {
    ASSERT_LT(failing, kAllocationsMax);
    GroupOfTwo group;
    proto::ServerFrame frame;
    frame.set_epoch(1);
    frame.add_items()->mutable_failed()->set_message("what went wrong, in more than a few bytes");
    allocations_left = failing;
    EXPECT_NO_THROW(group.ports_[0].OnFrame(std::move(frame))) << failing;
    const bool failed = allocations_left < 0;
    allocations_left = -1;
    RunAll(group.writes_.jobs);
    if (!failed) break;
    EXPECT_EQ(group.client_.ends.size(), 1u) << failing;
    ASSERT_FALSE(group.writes_.lease_ends.empty());
    EXPECT_EQ(group.writes_.lease_ends.back(), LeaseEnd::kGatewayFault);
  }
}

}  // namespace
}  // namespace outboard::gateway
