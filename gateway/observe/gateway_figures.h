// The values of a gateway that /metrics reads when it is scraped: sessions, the queue, workers,
// blobs, the ledger's queue, and, by account, what it uses. Each is kept ready by its owner: a
// scrape takes a few locks for microseconds and reads no table.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "telemetry/samples.h"

namespace outboard::gateway {

class BlobStore;
class CoreDriver;
class LedgerWriter;

// Threads: sampled by the thread of a scrape. All three outlive it.
class GatewayFigures {
 public:
  GatewayFigures(const CoreDriver* driver, const BlobStore* blobs, const LedgerWriter* ledger);

 private:
  void Sample(telemetry::Samples& samples) const;

  const CoreDriver* const driver_;
  const BlobStore* const blobs_;
  const LedgerWriter* const ledger_;
  const telemetry::Sampled sampled_;  // last: it uses the rest
};

// At most `most` accounts: those with the largest values, and the sum of the others as "other".
std::map<std::string, double> LargestAccounts(const std::map<int64_t, double>& values, size_t most);

}  // namespace outboard::gateway
