// Limits of meter, ledger and accounts: bounds of one request, one lease and one page. They are
// chosen so that sums fit their types and rows stay small.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::gateway {

// 68 years of one lease; with the highest price it costs less than 2^60 micro-USD.
inline constexpr int64_t kLeaseMsMax = (int64_t{1} << 31) * 1000;
// A million USD an hour for one device.
inline constexpr int64_t kPricePerHourMaxMicroUsd = 1'000'000'000'000;
// One transfer or balance: a trillion USD, far below 2^63 micro-USD, so that a sum of two always
// fits.
inline constexpr int64_t kAmountMaxMicroUsd = 1'000'000'000'000'000'000;

inline constexpr size_t kMeteredDevicesMax = 1 << 16;  // devices that one meter counts at once
inline constexpr size_t kChargesPerPostMax = 1 << 16;  // in one transaction
inline constexpr size_t kLinesPerEntryMax = 16;
inline constexpr size_t kNameBytesMax = 100;  // names of tenants, keys, workers, accounts
inline constexpr size_t kMemoBytesMax = 200;
inline constexpr size_t kStatementRowsMax = 1000;     // in one page
inline constexpr int64_t kInvoiceEntriesMax = 1000;   // likewise; some 300 KB
inline constexpr size_t kKeysPerTenantMax = 1000;     // that stand: neither revoked nor expired
inline constexpr size_t kDeadKeysPerTenantMax = 500;  // of the others, the last; all fit one reply
inline constexpr size_t kKeyRangesMax = 8;            // of addresses from which a key may be used
inline constexpr int kBusyTimeoutMs =
    10'000;  // how long one process waits for another's transaction

}  // namespace outboard::gateway
