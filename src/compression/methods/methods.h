#pragma once

#include "compression/registry.h"

// One function per method, defined in the file of its name.
namespace winnow::compression::methods {

MethodEntry AdaKv();
MethodEntry Cake();
MethodEntry Cam();
MethodEntry Caote();
MethodEntry Custom();
MethodEntry D2o();
MethodEntry Ems();
MethodEntry Full();
MethodEntry H2o();
MethodEntry Hbw();
MethodEntry KeyDiff();
MethodEntry KNorm();
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
MethodEntry Tova();
MethodEntry TreeKv();
MethodEntry Twilight();

}  // namespace winnow::compression::methods
