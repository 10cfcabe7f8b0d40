// Named places at which a test ends the process, as a crash or a cut of power would: the process is
// killed by itself, without any destructor, if OUTBOARD_FAILPOINT names the place
// ("ledger.post.commit"), or the place and how often it is passed first ("ledger.post.commit:3").
// Otherwise passing one costs a look at a flag.
//
// kFailpoints lists all of them: a call that names another does not compile, and one at which the
// test of its process kills nobody is a test that fails. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace outboard {

// Whose test kills at the failpoint.
enum class FailpointProcess : uint8_t {
  kGateway,  // gateway_failpoints_test
  kWorker,   // worker_failpoints_test
};

// A row of kFailpoints.
struct Failpoint {
  std::string_view name;
  FailpointProcess process;
  std::string_view interrupts;
};

// clang-format off
inline constexpr Failpoint kFailpoints[] = {
    // Three of each write transaction, one after the other: .begin, it has begun; .commit, all is
    // written and nothing committed; .done, it is committed and nobody was told.
    {"ledger.post.begin",              FailpointProcess::kGateway, "charges of one account"},
    {"ledger.post.commit",             FailpointProcess::kGateway, "charges of one account"},
    {"ledger.post.done",               FailpointProcess::kGateway, "charges of one account"},
    {"ledger.post_each.begin",         FailpointProcess::kGateway, "charges of several accounts"},
    {"ledger.post_each.commit",        FailpointProcess::kGateway, "charges of several accounts"},
    {"ledger.post_each.done",          FailpointProcess::kGateway, "charges of several accounts"},
    {"ledger.hold.begin",              FailpointProcess::kGateway, "a hold ahead of a lease"},
    {"ledger.hold.commit",             FailpointProcess::kGateway, "a hold ahead of a lease"},
    {"ledger.hold.done",               FailpointProcess::kGateway, "a hold ahead of a lease"},
    {"ledger.end_hold.begin",          FailpointProcess::kGateway, "the end of a hold"},
    {"ledger.end_hold.commit",         FailpointProcess::kGateway, "the end of a hold"},
    {"ledger.end_hold.done",           FailpointProcess::kGateway, "the end of a hold"},
    {"ledger.end_all_holds.begin",     FailpointProcess::kGateway, "the start of a gateway"},
    {"ledger.end_all_holds.commit",    FailpointProcess::kGateway, "the start of a gateway"},
    {"ledger.end_all_holds.done",      FailpointProcess::kGateway, "the start of a gateway"},
    {"ledger.set_cap.begin",           FailpointProcess::kGateway, "`outboard cap set`"},
    {"ledger.set_cap.commit",          FailpointProcess::kGateway, "`outboard cap set`"},
    {"ledger.set_cap.done",            FailpointProcess::kGateway, "`outboard cap set`"},
    {"ledger.set_credit_limit.begin",  FailpointProcess::kGateway, "a new limit of credit"},
    {"ledger.set_credit_limit.commit", FailpointProcess::kGateway, "a new limit of credit"},
    {"ledger.set_credit_limit.done",   FailpointProcess::kGateway, "a new limit of credit"},
    {"receipts.name_devices.begin",    FailpointProcess::kGateway, "the devices of a lease"},
    {"receipts.name_devices.commit",   FailpointProcess::kGateway, "the devices of a lease"},
    {"receipts.name_devices.done",     FailpointProcess::kGateway, "the devices of a lease"},
    {"receipts.keep.begin",            FailpointProcess::kGateway, "workers' receipts"},
    {"receipts.keep.commit",           FailpointProcess::kGateway, "workers' receipts"},
    {"receipts.keep.done",             FailpointProcess::kGateway, "workers' receipts"},
    {"tuning.add.begin",               FailpointProcess::kWorker,  "a measured kernel"},
    {"tuning.add.commit",              FailpointProcess::kWorker,  "a measured kernel"},
    {"tuning.add.done",                FailpointProcess::kWorker,  "a measured kernel"},
    {"tuning.costs.begin",             FailpointProcess::kWorker,  "what kernels cost programs"},
    {"tuning.costs.commit",            FailpointProcess::kWorker,  "what kernels cost programs"},
    {"tuning.costs.done",              FailpointProcess::kWorker,  "what kernels cost programs"},
    // In the middle of a transaction.
    {"ledger.entry.numbered",          FailpointProcess::kGateway, "an entry"},
    {"ledger.entry.line",              FailpointProcess::kGateway, "an entry"},
    {"ledger.entry.balance",           FailpointProcess::kGateway, "an entry"},
    {"ledger.account.posted",          FailpointProcess::kGateway, "charges of several accounts"},
    // Between transactions, and in files.
    {"ledger.archive.copied",          FailpointProcess::kGateway, "a month being archived"},
    {"ledger.archive.verified",        FailpointProcess::kGateway, "a month being archived"},
    {"ledger.archive.moved",           FailpointProcess::kGateway, "a month being archived"},
    {"writer.before_write",            FailpointProcess::kGateway, "the queue of writes"},
    {"writer.after_write",             FailpointProcess::kGateway, "the queue of writes"},
    {"audit.before_note",              FailpointProcess::kGateway, "what an audit found"},
    {"audit.after_note",               FailpointProcess::kGateway, "what an audit found"},
    {"objects.store.begin",            FailpointProcess::kWorker,  "a compiled kernel's file"},
    {"objects.store.written",          FailpointProcess::kWorker,  "a compiled kernel's file"},
    {"objects.store.done",             FailpointProcess::kWorker,  "a compiled kernel's file"},
};
// clang-format on

// The name of one, checked by the compiler.
class FailpointName {
 public:
  consteval FailpointName(const char* name) : row_(RowOf(name)) {}  // NOLINT: from a literal
  size_t row() const { return row_; }

 private:
  friend class TransactionFailpoints;
  constexpr explicit FailpointName(size_t row) : row_(row) {}
  static consteval size_t RowOf(std::string_view name) {
    size_t row = 0;
    for (const Failpoint& point : kFailpoints) {
      if (point.name == name) return row;
      ++row;
    }
    std::abort();  // no constant: does not compile
  }
  size_t row_;
};

// The three of a write transaction, by what their names begin with ("ledger.post"); or none.
class TransactionFailpoints {
 public:
  constexpr TransactionFailpoints() = default;
  consteval TransactionFailpoints(const char* begins)  // NOLINT: from a literal
      : first_(FirstOf(begins)) {}
  bool has_any() const { return first_ != kNone; }
  FailpointName begin() const { return FailpointName(first_); }
  FailpointName commit() const { return FailpointName(first_ + 1); }
  FailpointName done() const { return FailpointName(first_ + 2); }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  static consteval bool Is(size_t row, std::string_view begins, std::string_view ends) {
    const std::string_view name = kFailpoints[row].name;
    return name.size() == begins.size() + ends.size() && name.starts_with(begins) &&
           name.ends_with(ends);
  }
  static consteval size_t FirstOf(std::string_view begins) {
    for (size_t row = 0; row + 2 < std::size(kFailpoints); ++row)
      if (Is(row, begins, ".begin") && Is(row + 1, begins, ".commit") &&
          Is(row + 2, begins, ".done"))
        return row;
    std::abort();  // likewise
  }
  size_t first_ = kNone;
};

// Kills this process if the environment says so. An environment that names no failpoint ends it
// (OB_CHECK): a test would wait for what never comes.
void PassFailpoint(FailpointName name);

}  // namespace outboard
