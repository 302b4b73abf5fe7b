#pragma once

// The whole public API.
#include "winnow/compression.h"
#include "winnow/model.h"
#include "winnow/result.h"
#include "winnow/sampling.h"
#include "winnow/scheduler.h"
#include "winnow/session.h"
#include "winnow/version.h"
