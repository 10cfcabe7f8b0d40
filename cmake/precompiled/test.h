// Precompiled for tests: grpc.h and GoogleTest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/precompiled/grpc.h"
