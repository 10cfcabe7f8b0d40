// A page of an account's invoice, as the gateway serves it and `outboard invoice` reads it from the
// books.
// Threads: any; blocks on the disk.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "gateway/ledger/ids.h"
#include "proto/account.pb.h"

namespace outboard::gateway {

class HeadSigner;
class Ledger;
class ReceiptRows;

// Fills in the entries behind number `after`, the head that covers them and all before, and the
// receipts of their leases. Entries that are posted meanwhile come with a page of their own, which
// has a head of its own.
// Errors: the ledger's: DATA_LOSS, UNAVAILABLE
absl::Status InvoicePage(Ledger& ledger, HeadSigner& heads, ReceiptRows& receipts, TenantId tenant,
                         int64_t after, proto::InvoiceReply& reply);

}  // namespace outboard::gateway
