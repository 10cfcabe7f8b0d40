#include "gateway/proof/invoice_page.h"

#include <set>
#include <vector>

#include "base/check.h"
#include "gateway/ledger/entry.h"
#include "gateway/ledger/ledger.h"
#include "gateway/proof/head_signer.h"
#include "gateway/proof/invoice_check.h"
#include "gateway/proof/receipt_rows.h"

namespace outboard::gateway {

absl::Status InvoicePage(Ledger& ledger, HeadSigner& heads, ReceiptRows& receipts, TenantId tenant,
                         int64_t after, proto::InvoiceReply& reply) {
  OB_ASSIGN_OR_RETURN(const CoveredHead covered, heads.Refresh(tenant));
  *reply.mutable_head() = *covered.head;
  OB_ASSIGN_OR_RETURN(const std::vector<PostedEntry> entries,
                      ledger.EntriesOf(tenant, after, kInvoiceEntriesMax));
  int64_t last = after;
  std::set<LeaseId> leases;
  for (const PostedEntry& entry : entries) {
    if (entry.number > covered.last_number) break;
    last = entry.number;
    if (entry.body.charge.has_value()) leases.insert(entry.body.charge->device.lease);
    Fill(entry, *reply.add_entries());
  }
  for (const LeaseId& lease : leases) {
    OB_ASSIGN_OR_RETURN(const std::vector<proto::Receipt> of_lease, receipts.Of(lease));
    for (const proto::Receipt& receipt : of_lease) *reply.add_receipts() = receipt;
  }
  if (last < covered.last_number && !reply.entries().empty()) reply.set_next(last);
  return absl::OkStatus();
}

}  // namespace outboard::gateway
