// Figures of the trade: what is charged, what is not, and how fast.
#pragma once

namespace outboard::bench {

// ledger_postings_per_s, holds_per_s: durable, on the disk of the temporary folder.
// audit_entries_per_s: of the same ledger, everything computed anew.
// simulated_events_per_s: of worlds with faults, with every invariant checked after each event.
// short_lease_unbilled_ratio: of 1,000 leases of 900 ms.
// billing_error_micro_usd, cap_overshoot_micro_usd: over a million metering intervals of prepaid
// accounts, with lost workers, doubled postings, restarts of the gateway and clocks that go back.
// replay_billed_ms: over a thousand executors that are lost.
// And those of fork_figures.h, estimate_figures.h and sweep_figures.h.
void TradeFigures();

}  // namespace outboard::bench
