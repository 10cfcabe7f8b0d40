// Named places at which a test ends the process, as a crash or a cut of power would: the process is
// killed by itself, without any destructor, if OUTBOARD_FAILPOINT names the place
// ("ledger.post.commit"), or the place and how often it is passed first ("ledger.post.commit:3").
// Otherwise passing one costs a look at a flag.
//
// kFailpoints and kWorkerFailpoints list all of them, so that a test can go through them and find
// one that is never passed. Threads: any.
#pragma once

#include <string_view>

namespace outboard {

inline constexpr std::string_view kFailpoints[] = {
    // Three of each write transaction: it has begun; all is written and nothing committed; it is on
    // disk and nobody was told.
    "ledger.post.begin", "ledger.post.commit", "ledger.post.done",
    "ledger.post_each.begin", "ledger.post_each.commit", "ledger.post_each.done",
    "ledger.hold.begin", "ledger.hold.commit", "ledger.hold.done",
    "ledger.end_hold.begin", "ledger.end_hold.commit", "ledger.end_hold.done",
    "ledger.end_all_holds.begin", "ledger.end_all_holds.commit", "ledger.end_all_holds.done",
    "ledger.set_cap.begin", "ledger.set_cap.commit", "ledger.set_cap.done",
    "ledger.set_credit_limit.begin", "ledger.set_credit_limit.commit",
    "ledger.set_credit_limit.done",
    "receipts.name_devices.begin", "receipts.name_devices.commit", "receipts.name_devices.done",
    "receipts.keep.begin", "receipts.keep.commit", "receipts.keep.done",
    // In the middle of one.
    "ledger.entry.numbered", "ledger.entry.line", "ledger.entry.balance", "ledger.account.posted",
    // Between transactions.
    "ledger.archive.copied", "ledger.archive.verified", "ledger.archive.moved",
    "writer.before_write", "writer.after_write", "audit.before_note", "audit.after_note",
};

// Those of a worker: what its processes keep on its disk.
inline constexpr std::string_view kWorkerFailpoints[] = {
    "objects.store.begin", "objects.store.written", "objects.store.done",
    "tuning.add.begin", "tuning.add.commit", "tuning.add.done",
    "tuning.costs.begin", "tuning.costs.commit", "tuning.costs.done",
};

// Kills this process if the environment says so. `name` is one of the two lists'; checked.
void PassFailpoint(std::string_view name);

}  // namespace outboard
