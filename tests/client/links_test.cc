// The client library brings no compiler along: a program of ours loads no LLVM, and links none of
// the libraries that make or run kernels. Both checks are tried on the compile process, which has
// them.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/support/paths.h"

namespace outboard {
namespace {

std::string LoadedBy(const std::string& program) {
  const std::string command = "ldd '" + program + "' 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> piece;
  for (size_t n; pipe != nullptr && (n = fread(piece.data(), 1, piece.size(), pipe.get())) > 0;)
    text.append(piece.data(), n);
  return text;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Links, AProgramLoadsNoCompiler) {
  const std::string client = LoadedBy(test::kLinearProgram);
  EXPECT_TRUE(Has(client, "libgrpc")) << client;
  EXPECT_FALSE(Has(client, "LLVM")) << client;
  EXPECT_TRUE(Has(LoadedBy(test::kCompilerProgram), "LLVM")) << "the check sees nothing";
}

TEST(Links, TheClientLibraryLinksNoneThatMakesKernels) {
  const std::string client = CLIENT_LIBRARIES, compiler = COMPILER_LIBRARIES;
  EXPECT_TRUE(Has(client, " ob_session ")) << client;
  for (const char* library : {"ob_codegen", "ob_render", "ob_schedule", "ob_reference", "ob_cpu",
                              "ob_executor", "ob_worker", "ob_gateway", "LLVM"})
    EXPECT_FALSE(Has(client, std::string(" ") + library)) << library << " in " << client;
  for (const char* library : {"ob_codegen", "ob_render"})
    EXPECT_TRUE(Has(compiler, std::string(" ") + library)) << library << " not in " << compiler;
}

}  // namespace
}  // namespace outboard
