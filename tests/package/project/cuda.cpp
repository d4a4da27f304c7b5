// Links what GPU threads need of the control path. Exits with 0 with a GPU, and without.
#include "peal/host/cuda.hpp"

#include "peal/host/error.hpp"

int main() try { return peal::cuda_host_memory() != nullptr ? 0 : 1; } catch (const peal::Error&) {
  return 0;
}
