//! This process's place in a group that mpirun or Slurm started. Read from the environment; must not need MPI itself.

/// A process in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// From 0; 0 leads.
    pub rank: u32,
    /// Processes in the group.
    pub size: u32,
}

/// Rank and size as launchers tell them: Open MPI, MPICH and Intel MPI, Slurm.
const VARIABLES: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MPI_RANK", "MPI_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

impl Ranks {
    /// From the environment; a process on its own is rank 0 of 1.
    pub fn from_env() -> Self {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name| lookup(name)?.trim().parse::<u32>().ok();
        VARIABLES
            .iter()
            .find_map(|(rank, size)| Some(Self { rank: number(rank)?, size: number(size)? }))
            .filter(|ranks| ranks.rank < ranks.size)
            .unwrap_or(Self { rank: 0, size: 1 })
    }

    /// Whether this process waits for the leader instead of serving.
    pub fn is_worker(self) -> bool {
        self.rank > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(pairs: &[(&str, &str)]) -> Ranks {
        Ranks::from_lookup(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn launchers_are_understood() {
        assert_eq!(ranks(&[]), Ranks { rank: 0, size: 1 });
        assert_eq!(
            ranks(&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")]),
            Ranks { rank: 1, size: 4 }
        );
        assert_eq!(
            ranks(&[("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "8")]),
            Ranks { rank: 3, size: 8 }
        );
        // A job's shell, outside of srun, has a rank but no step.
        assert_eq!(ranks(&[("SLURM_PROCID", "0")]), Ranks { rank: 0, size: 1 });
        assert_eq!(ranks(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]), Ranks { rank: 0, size: 1 });
        assert!(ranks(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]).is_worker());
    }
}
