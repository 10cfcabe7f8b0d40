#include "worker/tpm/tss_library.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::worker {
namespace {

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("tpm2-tss here has no ", name));
}

absl::StatusOr<void*> Open(const char* name) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const why = dlerror();
  return absl::UnavailableError(
      absl::StrCat("tpm2-tss cannot be loaded: ", why != nullptr ? why : name));
}

absl::StatusOr<TssLibrary> LoadAll() {
  TssLibrary tss;
  OB_ASSIGN_OR_RETURN(void* const loader, Open("libtss2-tctildr.so.0"));
  OB_ASSIGN_OR_RETURN(void* const marshalling, Open("libtss2-mu.so.0"));
  OB_ASSIGN_OR_RETURN(void* const esys, Open("libtss2-esys.so.0"));
#define OB_TSS_FIND(library, name) OB_RETURN_IF_ERROR(Find(library, #name, tss.name))
  OB_TSS_FIND(loader, Tss2_TctiLdr_Initialize);
  OB_TSS_FIND(loader, Tss2_TctiLdr_Finalize);
  OB_TSS_FIND(marshalling, Tss2_MU_TPMT_PUBLIC_Marshal);
  OB_TSS_FIND(marshalling, Tss2_MU_TPMT_PUBLIC_Unmarshal);
  OB_TSS_FIND(esys, Esys_Initialize);
  OB_TSS_FIND(esys, Esys_Finalize);
  OB_TSS_FIND(esys, Esys_Free);
  OB_TSS_FIND(esys, Esys_CreatePrimary);
  OB_TSS_FIND(esys, Esys_StartAuthSession);
  OB_TSS_FIND(esys, Esys_PolicySecret);
  OB_TSS_FIND(esys, Esys_ActivateCredential);
  OB_TSS_FIND(esys, Esys_FlushContext);
  OB_TSS_FIND(esys, Esys_TR_FromTPMPublic);
  OB_TSS_FIND(esys, Esys_TR_Close);
  OB_TSS_FIND(esys, Esys_NV_ReadPublic);
  OB_TSS_FIND(esys, Esys_NV_Read);
#undef OB_TSS_FIND
  return tss;
}

}  // namespace

absl::StatusOr<const TssLibrary*> TssLibrary::Load() {
  static const absl::StatusOr<TssLibrary> loaded = LoadAll();
  OB_RETURN_IF_ERROR(loaded.status());
  return &*loaded;
}

}  // namespace outboard::worker
