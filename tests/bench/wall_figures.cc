#include "tests/bench/wall_figures.h"

#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "gateway/accounts/accounts.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/base/clock.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/blobs/limits.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/gateway.h"
#include "proto/account.grpc.pb.h"
#include "proto/store.grpc.pb.h"
#include "tests/bench/flood_figures.h"
#include "tests/bench/metrics_figures.h"
#include "tests/bench/report.h"
#include "tests/bench/sandbox_figures.h"
#include "tests/support/temp_folder.h"
#include "wire/limits.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
using gateway::Charge;
using gateway::SessionId;
using gateway::TenantId;

constexpr int64_t kPostings = 1'000'000;
constexpr int64_t kSessions = 250;
constexpr int64_t kSecondsPerPosting = 5;
constexpr int kCalls = 200;
constexpr int kReaders = 8;
constexpr int kBlobs = 100'000;
constexpr int kBlobsPerName = 10'000;

std::vector<double> TimesMs(int calls, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const Clock::time_point begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return times;
}

// Sessions that ran side by side, one device each, and have ended.
void MakeBooks(const std::string& path) {
  const auto now = gateway::WallNow();
  const TenantId tenant =
      ValueOrDie(ValueOrDie(gateway::Accounts::Open(path))->EnsureTenant("local", now)).id;
  const auto rows = ValueOrDie(gateway::SessionRows::Open(path));
  for (uint64_t i = 0; i < kSessions; ++i) {
    gateway::SessionRow row{.session = {1, i}, .tenant = tenant, .opened_at = now};
    OB_CHECK_OK(rows->Put(row));
    OB_CHECK_OK(rows->GrantLease(
                        {.lease = {row.session}, .tenant = tenant, .devices = 1, .granted_at = now})
                    .status());
    OB_CHECK_OK(rows->EndLease({row.session, 1}, gateway::LeaseEnd::kClosed, now));
    row.state = gateway::SessionRowState::kClosed;
    row.closed_at = now;
    OB_CHECK_OK(rows->Put(row));
  }
  const auto ledger = ValueOrDie(gateway::Ledger::Open(path));
  const auto price = gateway::kDefaultPricePerHour;
  std::vector<Charge> charges;
  for (int64_t i = 0; i < kPostings; ++i) {
    if (i < kSessions)
      OB_CHECK_OK(ledger
                      ->Hold({.lease = {{1, static_cast<uint64_t>(i)}, 1},
                              .tenant = tenant,
                              .prices_per_hour = {price},
                              .to_ms = 1000 * kPostings / kSessions * kSecondsPerPosting})
                      .status());
    const int64_t from_s = i / kSessions * kSecondsPerPosting, to_s = from_s + kSecondsPerPosting;
    charges.push_back({.device = {{{1, static_cast<uint64_t>(i % kSessions)}, 1}, 0},
                       .tenant = tenant,
                       .price_per_hour = price,
                       .granted_at = now,
                       .from_ms = 1000 * from_s,
                       .to_ms = 1000 * to_s,
                       .amount = {gateway::ChargeAfter(price, 1000 * to_s).value -
                                  gateway::ChargeAfter(price, 1000 * from_s).value}});
    if (charges.size() < 10'000 && i + 1 < kPostings) continue;
    OB_CHECK_OK(ledger->Post(charges, now).status());
    charges.clear();
  }
}

void UsageFigures() {
  test::TempFolder folder;
  MakeBooks(gateway::AccountsPath(folder.path()));
  const auto gateway = ValueOrDie(gateway::Gateway::Start(
      {.data_folder = folder.path(), .no_auth = true, .executors_outlive = false}));
  const auto account = proto::Account::NewStub(gateway->InProcessChannel());
  const auto store = proto::Store::NewStub(gateway->InProcessChannel());
  const auto usage = [&] {
    grpc::ClientContext context;
    proto::UsageReply reply;
    OB_CHECK(account->Usage(&context, proto::UsageRequest(), &reply).ok());
    OB_CHECK(reply.lines_size() == kSessions);
    OB_CHECK(reply.seconds_billed() == kPostings * kSecondsPerPosting);
  };
  const auto list = [&] {
    grpc::ClientContext context;
    proto::StoreListReply reply;
    OB_CHECK(store->List(&context, proto::StoreListRequest(), &reply).ok());
  };
  Report("usage_ms_p50", Quantile(TimesMs(kCalls, usage), 0.5), "ms", "",
         absl::StrFormat("one page: %d sessions, %d postings", kSessions, kPostings));
  const double alone = Quantile(TimesMs(10 * kCalls, list), 0.99);
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i)
    readers.emplace_back([&] {
      while (!stop) usage();
    });
  const double beside = Quantile(TimesMs(10 * kCalls, list), 0.99);
  stop = true;
  for (std::thread& reader : readers) reader.join();
  Report("beside_usage_p99_ratio", beside / alone, "", absl::StrFormat("alone: %.2f ms", alone),
         absl::StrFormat("listing names while %d threads ask for usage", kReaders));
  gateway->Stop(std::chrono::milliseconds(0));
}

// Files that need not survive: making them would take minutes otherwise.
class HastyDisk final : public gateway::Disk {
 public:
  absl::Status Sync(const std::string&) override { return absl::OkStatus(); }
};

void StoreUsageFigures() {
  test::TempFolder folder;
  HastyDisk disk;
  const auto store = ValueOrDie(gateway::BlobStore::Open(folder / "blobs", {.disk = &disk}));
  const auto retention =
      ValueOrDie(gateway::BlobRetention::Open(store.get(), folder / "names.db", gateway::WallNow));
  const TenantId tenant{1};
  for (int first = 0; first < kBlobs; first += kBlobsPerName) {
    proto::Checkpoint list;
    for (int i = first; i < first + kBlobsPerName; ++i) {
      const std::string bytes = absl::StrFormat("%08d", i);
      proto::Checkpoint::Entry& entry = *list.add_entries();
      entry.set_name(bytes);
      entry.set_dtype(3);  // u8
      entry.add_dims(bytes.size());
      entry.set_size_bytes(bytes.size());
      entry.set_blob_root(std::string(
          wire::AsBytes(ValueOrDie(store->Write(tenant, bytes, gateway::BlobOrigin::kClient)))));
    }
    const std::string name = absl::StrCat("n", first);
    std::promise<absl::Status> done;
    retention->Set(tenant, name, list, [&](absl::Status status) { done.set_value(status); });
    OB_CHECK_OK(done.get_future().get());
    OB_CHECK_OK(retention->Pin(tenant, name, true));
  }
  const auto usage = [&] {
    const auto counted = ValueOrDie(retention->UsageOf(tenant));
    OB_CHECK(counted.names == kBlobs / kBlobsPerName && counted.pinned_bytes >= 8 * kBlobs);
  };
  Report("store_usage_ms_p50", Quantile(TimesMs(kCalls, usage), 0.5), "ms", "",
         absl::StrFormat("%d blobs under pinned names, asked within the process", kBlobs));
}

// The next start, when an account has stored as many lists of 30,000 chunks as it may: 2 chunks, in
// another order each time. Without a limit it stored 1,500 of them.
void StoreOpenFigures() {
  test::TempFolder folder;
  HastyDisk disk;
  const TenantId tenant{1};
  const gateway::BlobStoreOptions options{
      .objects_max = gateway::kStoreObjectsMax,
      .list_entries_max = 2 * gateway::kStoreObjectsMax,
      .charges = {.object_bytes_min = gateway::kObjectBytesMin,
                  .list_entry_bytes = gateway::kListEntryBytes},
      .disk = &disk};
  size_t lists = 0;
  {
    const auto store = ValueOrDie(gateway::BlobStore::Open(folder / "blobs", options));
    std::vector<wire::Hash> chunks;
    for (const char letter : {'a', 'b'}) {
      const std::string bytes(wire::kBlobChunkBytes, letter);
      chunks.push_back(wire::HashChunk(bytes));
      const auto writer = ValueOrDie(store->Begin(tenant, chunks.back()));
      OB_CHECK_OK(writer->Append(bytes));
      OB_CHECK_OK(writer->Finish());
    }
    for (absl::Status status; status.ok(); ++lists) {
      std::vector<wire::Hash> list;
      for (size_t i = 0; i < wire::kBlobChunksMax; ++i)
        list.push_back(chunks[i < 16 ? lists >> i & 1 : i & 1]);
      const uint64_t bytes = list.size() * wire::kBlobChunkBytes;
      const wire::Hash root = wire::MerkleRoot(list, bytes);
      status = store->Commit(tenant, root, list, bytes);
      if (status.ok()) status = store->Protect(tenant, std::vector{root});
    }
  }
  const Clock::time_point begin = Clock::now();
  const auto store = ValueOrDie(gateway::BlobStore::Open(folder / "blobs", options));
  const double taken = std::chrono::duration<double>(Clock::now() - begin).count();
  Report("store_open_s", taken, "s", "",
         absl::StrFormat("%d lists of %d chunks, as many as one account may have", lists - 1,
                         wire::kBlobChunksMax));
}

}  // namespace

void WallFigures() {
  UsageFigures();
  StoreUsageFigures();
  StoreOpenFigures();
  FloodFigures();
  SandboxFigures();
  MetricsFigures();
}

}  // namespace outboard::bench
