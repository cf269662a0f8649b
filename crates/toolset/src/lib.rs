//! The four agent tools of Ringfence: schemas, wording, provisioning, masking.
