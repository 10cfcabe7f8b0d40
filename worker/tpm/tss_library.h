// tpm2-tss, loaded when a TPM is there: of all that run this program only nodes have one.
// Threads: any.
#pragma once

#include <tss2/tss2_esys.h>
#include <tss2/tss2_mu.h>
#include <tss2/tss2_tctildr.h>

#include "absl/status/statusor.h"

namespace outboard::worker {

// The functions that are used, by their names.
struct TssLibrary {
#define OB_TSS_FUNCTION(name) decltype(&::name) name = nullptr
  OB_TSS_FUNCTION(Tss2_TctiLdr_Initialize);
  OB_TSS_FUNCTION(Tss2_TctiLdr_Finalize);
  OB_TSS_FUNCTION(Tss2_MU_TPMT_PUBLIC_Marshal);
  OB_TSS_FUNCTION(Tss2_MU_TPMT_PUBLIC_Unmarshal);
  OB_TSS_FUNCTION(Esys_Initialize);
  OB_TSS_FUNCTION(Esys_Finalize);
  OB_TSS_FUNCTION(Esys_Free);
  OB_TSS_FUNCTION(Esys_CreatePrimary);
  OB_TSS_FUNCTION(Esys_StartAuthSession);
  OB_TSS_FUNCTION(Esys_PolicySecret);
  OB_TSS_FUNCTION(Esys_ActivateCredential);
  OB_TSS_FUNCTION(Esys_FlushContext);
  OB_TSS_FUNCTION(Esys_TR_FromTPMPublic);
  OB_TSS_FUNCTION(Esys_TR_Close);
  OB_TSS_FUNCTION(Esys_NV_ReadPublic);
  OB_TSS_FUNCTION(Esys_NV_Read);
#undef OB_TSS_FUNCTION

  // It stays loaded. Errors: UNAVAILABLE  it is not installed, or lacks one of these
  static absl::StatusOr<const TssLibrary*> Load();
};

}  // namespace outboard::worker
