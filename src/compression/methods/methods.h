#pragma once

#include "compression/registry.h"

// One function per method, defined in the file of the same name.
namespace winnow::compression::methods {

MethodEntry AdaKv();
MethodEntry AttentionMatching();
MethodEntry Cake();
MethodEntry Cam();
MethodEntry Caote();
MethodEntry Compactor();
MethodEntry CriticalKv();
MethodEntry Custom();
MethodEntry D2o();
MethodEntry DefensiveKv();
MethodEntry Ems();
MethodEntry ExpectedAttention();
MethodEntry Full();
MethodEntry H2o();
MethodEntry Hbw();
MethodEntry KeyDiff();
MethodEntry KNorm();
MethodEntry KvZip();
MethodEntry LagKv();
MethodEntry LmInfinite();
MethodEntry Local();
MethodEntry PyramidInfer();
MethodEntry PyramidKv();
MethodEntry Random();
MethodEntry ReFreeKv();
MethodEntry Rkv();
MethodEntry Roco();
MethodEntry Scissorhands();
MethodEntry SnapKv();
MethodEntry Streaming();
MethodEntry Strided();
MethodEntry Tova();
MethodEntry TreeKv();
MethodEntry TriAttention();
MethodEntry Twilight();
MethodEntry Winnow();

}  // namespace winnow::compression::methods
